// SPDX-License-Identifier: Apache-2.0
//
// Files that tests make, and a folder for them.
#pragma once

#include "test/support/folder.hpp"

#include <chorale/core/types.hpp>

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace sources {

using Content = std::vector<std::uint8_t>;

/// A folder of the test's, and files in it.
class Folder {
 public:
  std::string plain(std::string const& name, Content const& content) const {
    auto const file = (folder_ / name).string();
    std::ofstream{file, std::ios::binary}.write(reinterpret_cast<char const*>(content.data()),
                                                static_cast<std::streamsize>(content.size()));
    return file;
  }
  std::string gzipped(std::string const& name, Content const& content) const {
    auto const file = (folder_ / name).string();
    auto* to        = gzopen(file.c_str(), "wb");
    auto const n    = static_cast<unsigned>(content.size());
    if (gzwrite(to, content.data(), n) != static_cast<int>(n) || gzclose(to) != Z_OK)
      throw std::runtime_error{file + " was not written"};
    return file;
  }
  static Content bytes_of(std::string const& file) {
    auto from = std::ifstream{file, std::ios::binary};
    return {std::istreambuf_iterator<char>{from}, {}};
  }
  std::filesystem::path const& path() const { return folder_.path; }

 private:
  chorale::test::Folder folder_;
};

/// The bytes of a text that says them in hexadecimal; spaces are passed over.
inline Content hex(std::string const& text) {
  auto bytes = Content{};
  auto half  = -1;
  for (auto const c : text) {
    if (c == ' ' || c == '\n') continue;
    auto const digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (half >= 0) bytes.push_back(static_cast<std::uint8_t>(16 * half + digit));
    half = half >= 0 ? -1 : digit;
  }
  return bytes;
}

inline chorale::ConstBytes bytes_of(Content const& content) { return std::as_bytes(std::span{content}); }

}  // namespace sources
