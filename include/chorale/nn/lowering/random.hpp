// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/lowering/call.hpp>
#include <chorale/nn/lowering/program.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace chorale::nn::stablehlo {

namespace detail {

inline Value word(Value x, std::uint32_t number) {
  return x.program->constant(static_cast<double>(number), x.dims(), Element::u32);
}

/// The 64 bits of x times a number, as their high and their low half. Operations give 32 bits of a product, so the high
/// half is put together from products of 16 bits each.
inline std::pair<Value, Value> wide_product(Value x, std::uint32_t by) {
  auto const few = [](Value v) { return v & word(v, 0xFFFF); };
  auto const a = few(x), b = shifted_right(x, 16);
  auto const c = word(x, by & 0xFFFF), d = word(x, by >> 16);
  auto const ad = a * d, bc = b * c;
  auto const middle = shifted_right(a * c, 16) + few(ad) + few(bc);
  auto const high   = b * d + shifted_right(ad, 16) + shifted_right(bc, 16) + shifted_right(middle, 16);
  return {high, x * word(x, by)};
}

}  // namespace detail

/// The words of chorale::Random of a step, in operations: Philox4x32-10. They have the same bits.
///
/// index     high and low half, of any shape
/// returns   four words for each index
inline std::array<Value, 4> random_words(Drawn const& drawn, std::uint64_t stream, Value index_high, Value index_low) {
  auto const like = [&](Value scalar) { return broadcast(scalar, index_low.dims(), {}); };
  auto counter    = std::array{index_low, index_high, detail::word(index_low, static_cast<std::uint32_t>(stream)),
                            detail::word(index_low, static_cast<std::uint32_t>(stream >> 32))};
  auto key        = std::array{drawn.seed_low, drawn.seed_high};
  for (int round = 0; round < 10; ++round) {
    auto const [a_high, a_low] = detail::wide_product(counter[0], 0xD2511F53);
    auto const [b_high, b_low] = detail::wide_product(counter[2], 0xCD9E8D57);
    counter                    = {b_high ^ counter[1] ^ like(key[0]), b_low, a_high ^ counter[3] ^ like(key[1]), a_low};
    key                        = {key[0] + detail::word(key[0], 0x9E3779B9), key[1] + detail::word(key[1], 0xBB67AE85)};
  }
  return counter;
}

/// The words for `each` indices of each row: index (row of the global batch) * each + i.
///
/// returns   four values (B, each)
inline std::array<Value, 4> random_words(Call& at, std::int64_t each) {
  auto const dims        = Dims{at.rows(), each};
  auto const row         = at.program.iota(Element::u32, dims, 0) + broadcast(at.drawn.first_row, dims, {});
  auto const [high, low] = detail::wide_product(row, static_cast<std::uint32_t>(each));
  auto const index       = low + at.program.iota(Element::u32, dims, 1);
  auto const carry       = convert(compare(index, "LT", low), Element::u32);
  return random_words(at.drawn, static_cast<std::uint64_t>(at.number), high + carry, index);
}

}  // namespace chorale::nn::stablehlo
