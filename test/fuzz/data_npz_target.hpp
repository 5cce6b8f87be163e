// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/data/formats/npz.hpp>

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test {

/// Makes the checksums of what a .zip file has unpacked right, as far as its directory leads: as by someone who can
/// compute them.
inline std::vector<std::byte> with_right_zip_checksums(ConstBytes in) {
  auto bytes        = std::vector<std::byte>(in.begin(), in.end());
  auto const number = [&](std::size_t at, std::size_t n) {
    auto value = std::size_t{0};
    for (auto i = n; i-- > 0;) value = value << 8 | std::to_integer<std::size_t>(bytes[at + i]);
    return value;
  };
  auto const end = std::string_view{reinterpret_cast<char const*>(bytes.data()), bytes.size()}.rfind("PK\5\6");
  if (end == std::string_view::npos || bytes.size() - end < 22) return bytes;
  for (auto at = number(end + 16, 4); at < bytes.size() && bytes.size() - at >= 46;
       at += 46 + number(at + 28, 2) + number(at + 30, 2) + number(at + 32, 2)) {
    auto const header = number(at + 42, 4), size = number(at + 20, 4);
    if (header > bytes.size() || bytes.size() - header < 30) continue;
    auto const begin = header + 30 + number(header + 26, 2) + number(header + 28, 2);
    if (begin > bytes.size() || bytes.size() - begin < size) continue;
    auto const crc = ::crc32_z(0, reinterpret_cast<Bytef const*>(bytes.data() + begin), size);
    for (std::size_t i = 0; i < 4; ++i) bytes[at + 16 + i] = static_cast<std::byte>(crc >> 8 * i & 0xFF);
  }
  return bytes;
}

template <class T> void fuzz_npz_array(data::NpzFile const& file, std::string const& name, std::size_t most) {
  try {
    auto const array = file.read<T>(name);
    auto count       = std::size_t{1};
    for (auto const size : array.shape) count *= size;
    must(count == array.values.size(), "the shape is not that of the values");
    must(count <= most, "numbers come from nowhere");
  } catch (BadFile const&) {}
}

/// The first byte says whether checksums are made right; the rest is a .npz file.
inline void fuzz_data_npz(ConstBytes in) {
  if (in.empty()) return;
  static auto const memory = MemoryFile{};
  auto const right         = with_right_zip_checksums(in.subspan(1));
  auto const path          = memory.holding(in[0] == std::byte{0} ? in.subspan(1) : ConstBytes{right});
  try {
    auto const file  = data::NpzFile{path};
    auto const names = file.names();
    must(std::set<std::string>(names.begin(), names.end()).size() == names.size(), "two arrays of one name");
    must(names.size() <= in.size() / 46, "arrays from nowhere");
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 4); ++i) {
      fuzz_npz_array<float>(file, names[i], 1032 * in.size());  // see ByteSource::most
      fuzz_npz_array<std::int64_t>(file, names[i], 1032 * in.size());
      fuzz_npz_array<std::uint8_t>(file, names[i], 1032 * in.size());
    }
    if (names.size() >= 2) must(data::npz<float, float>(path, names[0], names[1]).size() > 0, "no rows");
  } catch (BadFile const&) {}
}

}  // namespace chorale::test
