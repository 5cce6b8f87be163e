// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/text/utf8.hpp>

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace chorale::data {

/// The text of a file, plain or gzipped.
///
/// throws   BadFile when it cannot be read, is empty, or is not UTF-8: with the byte
inline std::string read_text(std::filesystem::path const& path) {
  auto source = ByteSource{path};
  auto bytes  = std::vector<char>{};
  source.append(bytes, std::numeric_limits<std::size_t>::max());
  auto text = std::string{bytes.begin(), bytes.end()};
  if (text.empty()) throw BadFile{path.string() + ": is empty, but a text is needed.", "another path."};
  if (auto const at = first_not_utf8(text); at != text.size())
    source.fail(at, "is not UTF-8, as a text is", "to convert it with iconv, or data::ByteTokenizer on its bytes");
  return text;
}

}  // namespace chorale::data
