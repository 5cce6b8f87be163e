// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/core/crc32c.hpp>
#include <chorale/data/stages/file_cache_format.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace chorale::test {

/// Makes the checksums, the length and the fields of a file of cached rows right, as far as its numbers lead: as by
/// someone who can compute them.
inline std::vector<std::byte> with_right_cache_checksums(ConstBytes in, data::CacheFields const& fields) {
  auto bytes  = std::vector<std::byte>(in.begin(), in.end());
  auto header = data::detail::CacheHeader{};
  if (bytes.size() < sizeof header) return bytes;
  std::memcpy(&header, bytes.data(), sizeof header);
  auto crc = std::uint32_t{0};
  auto row = std::uint64_t{0};
  for (auto at = sizeof header; row < header.rows && bytes.size() - at >= 24; ++row) {
    auto sizes = std::array<std::uint64_t, 2>{};
    std::memcpy(sizes.data(), &bytes[at + 8], sizeof sizes);
    auto const left = bytes.size() - at - 24;
    if (sizes[0] > left || sizes[1] > left || data::detail::to_8(sizes[0]) + data::detail::to_8(sizes[1]) > left) break;
    auto const n      = 16 + static_cast<std::size_t>(data::detail::to_8(sizes[0]) + data::detail::to_8(sizes[1]));
    crc               = crc32c(ConstBytes{bytes}.subspan(at + 8, n), crc);
    auto const stored = std::uint64_t{crc};
    std::memcpy(&bytes[at], &stored, sizeof stored);
    at += 8 + n;
  }
  auto right  = data::detail::cache_header(fields);
  right.rows  = header.rows;
  right.bytes = bytes.size();
  right.last  = crc;
  right.crc   = right.right_crc();
  std::memcpy(bytes.data(), &right, sizeof right);
  return bytes;
}

/// The first byte says whether checksums are made right; the rest is a file of cached rows.
inline void fuzz_data_cache(ConstBytes in) {
  if (in.empty()) return;
  static auto const memory = MemoryFile{};
  auto const mode          = std::to_integer<unsigned>(in[0]);
  auto fields              = data::cache_fields<Sample<float, std::int32_t>>();
  fields.key               = 7;
  auto const right         = with_right_cache_checksums(in.subspan(1), fields);
  try {
    auto const file = data::CacheFile::open(memory.holding(mode % 2 == 0 ? in.subspan(1) : ConstBytes{right}), fields);
    must(file.has_value(), "a file that is there is not found");
    auto row     = std::array<ConstBytes, 2>{};
    auto starts  = std::vector<data::CacheFile::Cursor>{};
    auto cursor  = file->begin();
    auto total   = std::size_t{0};
    auto const n = [&] { return starts.push_back(cursor), file->next(cursor, row, data::CacheFile::Check::all); };
    while (n()) {
      must(row[0].size() % 4 == 0 && row[1].size() % 4 == 0, "a part of a number");
      total += 24 + row[0].size() + row[1].size();
      for (auto const& field : row) static_cast<void>(std::vector<std::byte>(field.begin(), field.end()));
    }
    must(total <= in.size() && starts.size() == file->rows() + 1, "rows from nowhere");
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
      cursor = starts[i];
      must(file->next(cursor, row, data::CacheFile::Check::none) && cursor.at == starts[i + 1].at,
           "a row that was checked is another one");
    }
  } catch (BadFile const&) {}
}

}  // namespace chorale::test
