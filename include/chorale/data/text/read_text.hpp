// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/data/formats/byte_source.hpp>
#include <chorale/data/text/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace chorale::data {

/// The text of a file, plain or gzipped.
///
/// most     bytes, unpacked; 0: 8 GiB, and of a packed file 64 times its size, or 64 MiB if that is more
/// throws   BadFile when it cannot be read, has more bytes, is empty, or is not UTF-8: with the byte
inline std::string read_text(std::filesystem::path const& path, std::uint64_t most = 0) {
  auto source = ByteSource{path};
  auto text   = std::string{};
  chorale::detail::or_out_of_memory(path, [&] {
    auto const expect_end = [&] { source.expect_at_most(most, "read_text(path, most)"); };
    auto piece            = std::size_t{64} << 10;  // a short text takes little memory
    for (expect_end(); source.append(text, piece) == piece; piece = std::min(2 * piece, std::size_t{4} << 20))
      expect_end();
    expect_end();
  });
  if (text.empty()) throw BadFile{path.string() + ": is empty, but a text is needed.", "another path."};
  if (auto const at = first_not_utf8(text); at != text.size())
    source.fail(at, "is not UTF-8, as a text is", "to convert it with iconv, or data::ByteTokenizer on its bytes");
  return text;
}

}  // namespace chorale::data
