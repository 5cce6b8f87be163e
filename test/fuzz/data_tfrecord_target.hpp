// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/data/formats/tfrecord.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace chorale::test {

/// Makes the checksums of a TFRecord file right, as far as its lengths lead: as by someone who can compute them.
inline std::vector<std::byte> with_right_checksums(ConstBytes in) {
  auto bytes     = std::vector<std::byte>(in.begin(), in.end());
  auto const put = [&](std::size_t at, std::uint32_t crc) {
    for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(crc >> 8 * i & 0xFF);
  };
  for (std::size_t at = 0; bytes.size() - at >= 12;) {
    auto const length = data::detail::little_endian<std::uint64_t>(ConstBytes{bytes}.subspan(at, 8));
    put(at + 8, data::detail::masked(crc32c(ConstBytes{bytes}.subspan(at, 8))));
    at += 12;
    if (bytes.size() - at < 4 || length > bytes.size() - at - 4) break;
    at += static_cast<std::size_t>(length);
    put(at, data::detail::masked(crc32c(
                ConstBytes{bytes}.subspan(at - static_cast<std::size_t>(length), static_cast<std::size_t>(length)))));
    at += 4;
  }
  return bytes;
}

struct ReadRecords {
  std::size_t records = 0;
  std::vector<std::byte> written{};  // the same records as a file
  bool complained = false;
};

inline ReadRecords read_records(std::string const& file, data::TfRecordOptions const& options) {
  auto result = ReadRecords{};
  try {
    auto reader = data::TfRecordReader{file, options};
    for (auto record = ConstBytes{}; reader.next(record); ++result.records) {
      must(record.size() <= options.max_record, "a record is longer than the cap");
      auto& to = result.written;
      for (std::size_t i = 0; i < 8; ++i) to.push_back(static_cast<std::byte>(record.size() >> 8 * i & 0xFF));
      to.insert(to.end(), 4, std::byte{});
      to.insert(to.end(), record.begin(), record.end());
      to.insert(to.end(), 4, std::byte{});
      must(to.size() < std::size_t{64} << 20, "few bytes became many");
    }
  } catch (BadFile const&) { result.complained = true; }
  result.written = with_right_checksums(result.written);
  return result;
}

/// The first byte says how the rest is packed, and whether its checksums are made right.
inline void fuzz_data_tfrecord(ConstBytes in) {
  if (in.empty()) return;
  static auto const memory = MemoryFile{};
  auto const mode          = std::to_integer<unsigned>(in[0]);
  auto const compression   = static_cast<data::Compression>(mode % 4);
  auto const right         = with_right_checksums(in.subspan(1));
  auto const content       = mode % 8 >= 4 ? ConstBytes{right} : in.subspan(1);
  auto const file          = memory.holding(content);

  auto const strict = read_records(file, {.compression = compression, .max_record = 1 << 16});
  if (compression == data::Compression::none) {
    must(strict.written.size() <= content.size(), "records come from nowhere");
    must(std::ranges::equal(strict.written, content.first(strict.written.size())), "a record is not what is there");
    must(strict.complained == (strict.written.size() < content.size()), "bytes are passed over in silence");
  }
  auto const skipped = std::make_shared<data::Skipped>();
  auto const lenient = read_records(file, {.compression = compression, .max_record = 1 << 16, .skipped = skipped});
  must(lenient.records >= strict.records, "records are lost where damage is allowed");
  must(skipped->rests() <= 1, "a file has one rest at most");
  must(strict.complained == (lenient.complained || skipped->records() + skipped->rests() > 0), "damage goes uncounted");
}

}  // namespace chorale::test
