// SPDX-License-Identifier: Apache-2.0
//
// A folder for the files of one test, and what is in them.
#pragma once

#include "test/support/folder.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace observe {

/// A folder of the test's, with files of text.
struct Folder : chorale::test::Folder {
  std::filesystem::path file(std::string_view name, std::string_view content) const {
    std::ofstream{path / name, std::ios::binary} << content;
    return path / name;
  }
  auto begin() const { return std::filesystem::directory_iterator{path}; }
  auto end() const { return std::filesystem::directory_iterator{}; }
};

inline std::string content_of(std::filesystem::path const& file) {
  auto from = std::ifstream{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{from}, {}};
}

/// The bytes of a text that says them in hexadecimal; spaces are passed over.
inline std::string hex(std::string_view text) {
  auto bytes = std::string{};
  auto half  = -1;
  for (auto const c : text) {
    if (c == ' ') continue;
    auto const digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (half >= 0) bytes += static_cast<char>(16 * half + digit);
    half = half >= 0 ? -1 : digit;
  }
  return bytes;
}

/// What a call throws; empty when it returns.
template <class E> std::string said(auto&& call) {
  try {
    call();
  } catch (E const& error) { return error.what(); }
  return {};
}

}  // namespace observe
