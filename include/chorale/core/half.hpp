// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace chorale {
namespace detail {

/// Selects one of two values without a branch, so that a loop over conversions is vectorised.
constexpr std::uint32_t choose(bool first, std::uint32_t a, std::uint32_t b) {
  auto const mask = 0U - static_cast<std::uint32_t>(first);
  return (a & mask) | (b & ~mask);
}

constexpr std::uint16_t bf16_bits(float value) {
  auto const u       = std::bit_cast<std::uint32_t>(value);
  auto const rounded = (u + 0x7FFFU + (u >> 16 & 1U)) >> 16;  // ties to even; the largest become infinite
  auto const nan     = u >> 16 | 0x40U;                       // stays a NaN, whatever bits are cut off
  return static_cast<std::uint16_t>(choose((u & 0x7FFF'FFFFU) > 0x7F80'0000U, nan, rounded));
}

constexpr float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

constexpr std::uint16_t fp16_bits(float value) {
  constexpr auto half   = std::uint32_t{126} << 23;  // 0.5f: its last bit is worth 2^-24
  auto const u          = std::bit_cast<std::uint32_t>(value);
  auto const sign       = u >> 16 & 0x8000U;
  auto const magnitude  = u & 0x7FFF'FFFFU;
  auto const normal     = (magnitude - (std::uint32_t{112} << 23) + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  auto const subnormal  = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - half;
  auto const nan        = 0x7E00U | (magnitude >> 13 & 0x3FFU);
  auto const not_finite = choose(magnitude > 0x7F80'0000U, nan, 0x7C00U);
  auto const finite     = choose(magnitude < std::uint32_t{113} << 23, subnormal, normal);  // below 2^-14
  return static_cast<std::uint16_t>(sign | choose(magnitude >= std::uint32_t{143} << 23, not_finite, finite));  // 2^16
}

constexpr float fp16_value(std::uint16_t bits) {
  auto const magnitude = std::uint32_t{bits} & 0x7FFFU;
  auto const sign      = (std::uint32_t{bits} & 0x8000U) << 16;
  auto const shift     = choose(magnitude >= 0x7C00U, 224, 112);  // infinity and NaN are kept
  auto const normal    = (magnitude << 13) + (shift << 23);
  auto const subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F);
  return std::bit_cast<float>(sign | choose(magnitude < 0x400U, subnormal, normal));
}

}  // namespace detail

/// A number in 16 bits with the range of float: 8 bits of exponent, 8 of precision. For storing and sending; it
/// converts to float implicitly, to compute with.
///
/// order   from float to the nearest, ties to even; above the largest, infinity. A NaN stays a NaN
/// cost    two bytes, no heap; a few integer operations each way, in vectors
struct bf16 {
  constexpr bf16() = default;
  constexpr explicit bf16(float value) : bits{detail::bf16_bits(value)} {}
  constexpr operator float() const { return detail::bf16_value(bits); }

  std::uint16_t bits = 0;
};

/// A number in 16 bits after IEEE 754 binary16: 5 bits of exponent, 11 of precision, at most 65504. For storing and
/// sending; it converts to float implicitly, to compute with.
///
/// order   from float to the nearest, ties to even, subnormals included; from 65520 on infinity. A NaN stays a NaN
/// cost    two bytes, no heap; a few operations each way, in vectors
struct fp16 {
  constexpr fp16() = default;
  constexpr explicit fp16(float value) : bits{detail::fp16_bits(value)} {}
  constexpr operator float() const { return detail::fp16_value(bits); }

  std::uint16_t bits = 0;
};

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

}  // namespace chorale
