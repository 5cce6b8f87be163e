// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

namespace chorale {

/// Random numbers that are a function of (seed, stream, index): the same bits on every device, rank and thread count.
///
/// stream  purpose of the numbers: a variable, an epoch, a layer in a step; streams are independent
/// index   position in the stream; any order, any number of threads
/// source  Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011
class Random {
 public:
  constexpr Random(Seed seed, std::uint64_t stream) : key_{low(seed.value), high(seed.value)}, stream_{stream} {}

  /// Four 32-bit words for one index.
  constexpr std::array<std::uint32_t, 4> words(std::uint64_t index) const {
    auto counter = std::array<std::uint32_t, 4>{low(index), high(index), low(stream_), high(stream_)};
    auto key     = key_;
    for (int round = 0; round < 10; ++round) {
      auto const a = std::uint64_t{0xD2511F53} * counter[0];
      auto const b = std::uint64_t{0xCD9E8D57} * counter[2];
      counter      = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
      key          = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
    }
    return counter;
  }

  /// 64 random bits for one index.
  constexpr std::uint64_t bits(std::uint64_t index) const {
    auto const w = words(index);
    return std::uint64_t{w[1]} << 32 | w[0];
  }

  /// Uniform in [0, 1), a multiple of 2^-24.
  constexpr float uniform(std::uint64_t index) const { return to_unit(words(index)[0]); }

  /// Uniform in [from, to).
  constexpr float uniform(std::uint64_t index, float from, float to) const {
    return from + (to - from) * uniform(index);
  }

  /// Uniform in [0, n), for n up to 2^32; no value is favoured by more than n · 2^-32.
  constexpr std::uint64_t below(std::uint64_t index, std::uint64_t n) const { return words(index)[0] * n >> 32; }

  /// Normal with mean 0 and standard deviation 1.
  ///
  /// source  Box and Muller, 1958
  float normal(std::uint64_t index) const {
    auto const w      = words(index);
    auto const radius = std::sqrt(-2.0F * std::log(1.0F - to_unit(w[0])));
    return radius * std::cos(2.0F * std::numbers::pi_v<float> * to_unit(w[1]));
  }

 private:
  static constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
  static constexpr float to_unit(std::uint32_t w) { return static_cast<float>(w >> 8) * 0x1p-24F; }

  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
};

/// Shuffles n values by a permutation that is a function of (random, n): Fisher and Yates, from the back.
template <class Values> void shuffle(Values& values, Random const& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i, i)]);
}

}  // namespace chorale
