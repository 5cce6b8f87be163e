// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/data/formats/cifar.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale::test {

/// The first byte says which CIFAR, and how many pixels stand for each byte that follows: a record is long.
inline void fuzz_data_cifar(ConstBytes in) {
  if (in.empty()) return;
  static auto const memory = MemoryFile{};
  auto const mode          = std::to_integer<unsigned>(in[0]);
  auto const repeat        = std::size_t{1} << mode / 4 % 8;
  auto content             = std::vector<std::byte>{};
  auto const most          = in.size() > 1 && in[1] == std::byte{0x1f} ? std::size_t{1} << 6 : std::size_t{1} << 13;
  for (auto const byte : in.subspan(1))  // of packed ones few: they become a thousand times as many
    if (content.size() < most) content.insert(content.end(), repeat, byte);
  auto const hundred = mode % 2 == 1;
  auto const format =
      hundred ? data::detail::CifarFormat{.classes = {20, 100}, .wanted = mode / 2 % 2} : data::detail::CifarFormat{};
  auto const record = data::detail::cifar_pixels + (hundred ? 2 : 1);
  auto const packed = content.size() >= 2 && content[0] == std::byte{0x1f};
  auto rows         = data::RowVectors<std::uint8_t, std::uint8_t>{};
  try {
    data::detail::read_cifar(memory.holding(content), format, rows);
    must(packed || rows.y.size() * record == content.size(), "bytes are left over in silence");
  } catch (BadFile const&) {}
  must(rows.x.size() == rows.y.size() * data::detail::cifar_pixels, "an image without a label, or the reverse");
  for (auto const label : rows.y) must(label < format.classes[format.wanted], "a label is none");
}

}  // namespace chorale::test
