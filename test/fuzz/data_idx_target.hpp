// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/data/formats/idx.hpp>

#include <algorithm>
#include <cstddef>

namespace chorale::test {

/// The first byte says how many of the others are the file of labels; the rest is the file of images.
inline void fuzz_data_idx(ConstBytes in) {
  if (in.empty()) return;
  static auto const first = MemoryFile{}, second = MemoryFile{};
  auto const n      = std::min(std::to_integer<std::size_t>(in[0]), in.size() - 1);
  auto const labels = in.subspan(1, n), images = in.subspan(1 + n);
  try {
    auto const rows = data::idx(first.holding(images), second.holding(labels));
    auto stream     = rows.stream(0);
    auto count      = std::size_t{0};
    for (Sample<std::uint8_t, std::uint8_t> row; stream.next(row); ++count) {
      must(row.y.size() == 1 && row.y[0] < 10, "a label is none");
      must(!row.x.empty(), "an image is empty");
    }
    must(count > 0 && count == rows.size(), "the number of rows is another one");
  } catch (BadFile const&) {}
}

}  // namespace chorale::test
