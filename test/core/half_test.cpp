// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/half.hpp>

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using namespace chorale;

namespace {

constexpr auto infinite = std::numeric_limits<float>::infinity();

/// The value of 16 bits, by the definition of the format: sign, exponent of `exponent_bits`, the rest mantissa.
double by_definition(std::uint32_t bits, int exponent_bits) {
  int const mantissa_bits = 15 - exponent_bits;
  int const bias          = (1 << (exponent_bits - 1)) - 1;
  auto const exponent     = static_cast<int>(bits >> mantissa_bits & ((1U << exponent_bits) - 1));
  auto const mantissa     = static_cast<double>(bits & ((1U << mantissa_bits) - 1));
  double const sign       = (bits & 0x8000U) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * infinite : std::nan("");
  double const leading = exponent == 0 ? 0 : 1;
  return sign * std::ldexp(leading + std::ldexp(mantissa, -mantissa_bits), (exponent == 0 ? 1 : exponent) - bias);
}

template <class Half> Half from_bits(std::uint32_t bits) {
  auto half = Half{};
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

template <class Half> constexpr int exponent_bits = 8;
template <> constexpr int exponent_bits<fp16>     = 5;

static_assert(float{bf16{1.0F}} == 1.0F && float{fp16{-2.5F}} == -2.5F);  // at compile time, too
static_assert(fp16{65'504.0F}.bits == 0x7BFF && fp16{65'520.0F}.bits == 0x7C00 && fp16{0x1p-25F}.bits == 0);

}  // namespace

TEMPLATE_TEST_CASE("every one of the 65536 patterns has the value of the format's definition, and comes back",
                   "[core][half]", bf16, fp16) {
  auto wrong = 0;
  for (std::uint32_t bits = 0; bits < 65'536; ++bits) {
    auto const half     = from_bits<TestType>(bits);
    auto const expected = by_definition(bits, exponent_bits<TestType>);
    auto const value    = float{half};
    if (std::isnan(expected)) {
      wrong += !std::isnan(value) || !std::isnan(float{TestType{value}}) || (TestType{value}.bits ^ bits) >> 15 != 0;
    } else {
      wrong += static_cast<double>(value) != expected || TestType{value}.bits != bits;  // zeros keep their sign
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("a float becomes the nearest, and of two that are as near the even one", "[core][half]", bf16,
                   fp16) {
  auto wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7FFF; ++bits) {  // each pair of neighbours, both signs
    auto const below = float{from_bits<TestType>(bits)}, above = float{from_bits<TestType>(bits + 1)};
    if (!std::isfinite(above)) continue;
    auto const middle  = static_cast<float>((static_cast<double>(below) + static_cast<double>(above)) / 2);
    auto const nearest = [&](float value) { return static_cast<std::uint32_t>(TestType{value}.bits); };
    wrong += nearest(middle) != bits + bits % 2;
    wrong += nearest(-middle) != (bits + bits % 2 | 0x8000U);
    wrong += nearest(std::nextafter(middle, below)) != bits;
    wrong += nearest(std::nextafter(middle, above)) != bits + 1;
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("what is too large becomes infinite, and no NaN is lost", "[core][half]", bf16, fp16) {
  CHECK(float{TestType{std::numeric_limits<float>::max()}} == infinite);
  CHECK(float{TestType{-infinite}} == -infinite);
  for (std::uint32_t const payload : {1U, 0x2000U, 0x40'0000U, 0x7F'FFFFU}) {  // some of them in bits that are cut off
    CHECK(std::isnan(float{TestType{std::bit_cast<float>(0x7F80'0000U | payload)}}));
    CHECK(std::isnan(float{TestType{std::bit_cast<float>(0xFF80'0000U | payload)}}));
  }
}
