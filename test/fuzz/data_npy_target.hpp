// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/fuzz/memory_file.hpp"
#include "test/fuzz/property.hpp"

#include <chorale/data/formats/npy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace chorale::test {

template <class T> void fuzz_npy_of(ConstBytes in) {
  static auto const memory = MemoryFile{}, other = MemoryFile{};
  try {
    auto const array = data::read_npy<T>(memory.holding(in));
    auto count       = std::size_t{1};
    for (auto const size : array.shape) count *= size;
    must(count == array.values.size(), "the shape is not that of the values");
    auto const packed = in.size() >= 2 && in[0] == std::byte{0x1f};
    must(packed || array.values.size() <= in.size(), "numbers come from nowhere");
    auto const path = other.holding({});
    data::write_npy(path, array.shape, Span<T const>{array.values});
    auto const again = data::read_npy<T>(path);
    must(again.shape == array.shape, "a shape is not the same after it was written");
    must(std::ranges::equal(std::as_bytes(Span<T const>{again.values}), std::as_bytes(Span<T const>{array.values})),
         "numbers are not the same after they were written");
  } catch (BadFile const&) {}
}

/// Any bytes, as a .npy file of several kinds.
inline void fuzz_data_npy(ConstBytes in) {
  fuzz_npy_of<float>(in);
  fuzz_npy_of<std::int64_t>(in);
  fuzz_npy_of<std::uint8_t>(in);
}

}  // namespace chorale::test
