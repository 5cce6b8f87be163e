// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace chorale {

/// Hash of the bits of all values; a change of any one value changes it.
///
/// cost    one pass over the values at the speed of the cache or memory that they are in
/// order   follows the values: the same number on every machine
inline std::uint64_t hash_of(Span<float const> values) {
  constexpr std::size_t lanes = 64;  // independent: vectors that need not wait
  auto h                      = std::array<std::uint32_t, lanes>{};
  auto const n                = values.size() / lanes * lanes;
  for (std::size_t i = 0; i < n; i += lanes)
    for (std::size_t k = 0; k < lanes; ++k)
      h[k] = (h[k] ^ std::bit_cast<std::uint32_t>(values[i + k])) * 0x9e3779b1U + 0x7f4a7c15U;
  auto all = Fnv1a<std::uint64_t>{};
  for (auto const lane : h) all.add_word(lane);
  for (float const v : values.subspan(n)) all.add_word(std::bit_cast<std::uint32_t>(v));
  return all.value();
}

/// Numbers that are summed over replicas, with the gradients, to check whether all replicas have the same hash.
///
///   | how many | 5 digits of 6 bits | the squares of the digits |
///
///   n numbers are equal exactly when n times the sum of their squares is the square of their sum.
///
/// keeps   exact in float up to 4,000 replicas; different hashes are taken for equal once in 2^30
struct ReplicaDigest {
  static constexpr std::size_t digits = 5, size = 1 + 2 * digits;

  static void write(std::uint64_t hash, Span<float> to) {
    to[0] = 1;
    for (std::size_t i = 0; i < digits; ++i) {
      auto const digit   = (hash >> 6 * i ^ hash >> (6 * i + 32)) & 63;
      to[1 + i]          = static_cast<float>(digit);
      to[1 + digits + i] = static_cast<float>(digit * digit);
    }
  }

  /// True if all digests in the sums were equal, or there were none.
  static bool all_equal(Span<float const> sums) {
    auto const at = [&](std::size_t i) { return static_cast<std::uint64_t>(sums[i]); };
    for (std::size_t i = 1; i <= digits; ++i)
      if (at(0) * at(digits + i) != at(i) * at(i)) return false;
    return true;
  }
};

}  // namespace chorale
