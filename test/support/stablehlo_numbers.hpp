// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of StableHLO on single numbers, as its specification says: floats in double, with halves rounded to
// their digits, integers of 32 bits exactly.
#pragma once

#include <chorale/nn/lowering/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::test::hlo {

using nn::stablehlo::count;
using nn::stablehlo::Dims;
using nn::stablehlo::Element;
using nn::stablehlo::is_float;
using nn::stablehlo::Kind;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
inline void expect(bool good, std::string const& what) {
  if (!good) throw std::runtime_error{"the interpreter of StableHLO needs " + what};
}

inline bool has(Dims const& some, std::size_t d) {
  return std::ranges::find(some, static_cast<std::int64_t>(d)) != some.end();
}
/// Distances of neighbours along each dimension.
inline Dims strides(Dims const& dims) {
  auto made = Dims(dims.size(), 1);
  for (auto i = dims.size(); i-- > 1;) made[i - 1] = made[i] * dims[i];
  return made;
}
/// Calls f(place, number) for each element.
template <class F> void each(Dims const& dims, F&& f) {
  auto place   = Dims(dims.size(), 0);
  auto const n = count(dims);
  for (std::int64_t number = 0; number < n; ++number) {
    f(place, at(number));
    for (auto i = dims.size(); i-- > 0;) {
      if (++place[i] < dims[i]) break;
      place[i] = 0;
    }
  }
}

/// A number with so many binary digits, to even; subnormal ones below 2^low.
inline double rounded(double x, int digits, int low) {
  if (x == 0 || !std::isfinite(x)) return x;
  auto const unit = std::max(std::ilogb(x), low) - digits + 1;
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}
inline std::uint32_t bits(double whole) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(static_cast<std::int64_t>(whole)));
}
/// A result as its element type has it.
inline double as(Element element, double x) {
  switch (element) {
    case Element::f32: return x;
    case Element::bf16: return rounded(x, 8, -126);
    case Element::f16: {
      auto const y = rounded(x, 11, -14);
      return std::abs(y) > 65504 ? std::copysign(HUGE_VAL, y) : y;
    }
    case Element::i32: return static_cast<std::int32_t>(bits(x));
    case Element::u32: return bits(x);
    case Element::i1: return x != 0 ? 1 : 0;
  }
  return x;
}
inline double unary(Kind kind, Element e, double x) {
  switch (kind) {
    case Kind::stop: return x;
    case Kind::negate: return -x;
    case Kind::abs: return std::abs(x);
    case Kind::sign: return x > 0 ? 1 : x < 0 ? -1 : x;
    case Kind::exponential: return std::exp(x);
    case Kind::log: return std::log(x);
    case Kind::log_plus_one: return std::log1p(x);
    case Kind::exponential_minus_one: return std::expm1(x);
    case Kind::sqrt: return std::sqrt(x);
    case Kind::rsqrt: return 1 / std::sqrt(x);
    case Kind::tanh: return std::tanh(x);
    case Kind::logistic: return 1 / (1 + std::exp(-x));
    case Kind::erfc: return std::erfc(x);
    case Kind::floor: return std::floor(x);
    case Kind::cosine: return std::cos(x);
    case Kind::sine: return std::sin(x);
    case Kind::not_: return e == Element::i1 ? 1 - x : static_cast<double>(~bits(x));
    default: throw std::runtime_error{"the interpreter of StableHLO met an unknown operation"};
  }
}
/// The result of an operation on two integers of 32 bits, before as() cuts it to them and gives it a sign.
inline double whole(Kind kind, Element e, double a, double b) {
  auto const x = bits(a), y = bits(b);
  switch (kind) {
    case Kind::add: return e == Element::i1 ? x | y : x + y;
    case Kind::subtract: return x - y;
    case Kind::multiply: return x * y;
    case Kind::divide: return b == 0 ? -1 : std::trunc(a / b);  // quotients of 32 bits are exact in double
    case Kind::remainder: return b == 0 ? a : std::fmod(a, b);
    case Kind::power: return std::pow(a, b);
    case Kind::and_: return x & y;
    case Kind::or_: return x | y;
    case Kind::xor_: return x ^ y;
    case Kind::shift_left: return y < 32 ? x << y : 0U;
    case Kind::shift_right: return y < 32 ? x >> y : 0U;
    default: throw std::runtime_error{"the interpreter of StableHLO met an unknown operation of integers"};
  }
}
inline double binary(Kind kind, Element e, double a, double b) {
  if (!is_float(e) && kind != Kind::maximum && kind != Kind::minimum) return whole(kind, e, a, b);
  switch (kind) {
    case Kind::add: return a + b;
    case Kind::subtract: return a - b;
    case Kind::multiply: return a * b;
    case Kind::divide: return a / b;
    case Kind::maximum: return std::isnan(a) || a > b ? a : b;
    case Kind::minimum: return std::isnan(a) || a < b ? a : b;
    case Kind::power: return std::pow(a, b);
    case Kind::remainder: return std::fmod(a, b);
    default: throw std::runtime_error{"the interpreter of StableHLO met an unknown operation of floats"};
  }
}
inline bool holds(std::string_view word, double a, double b) {
  if (word == "LT") return a < b;
  if (word == "LE") return a <= b;
  if (word == "GT") return a > b;
  if (word == "GE") return a >= b;
  if (word == "EQ") return a == b;
  expect(word == "NE", "a comparison, not " + std::string{word});
  return a != b;
}
inline double converted(double x, Element from, Element to) {
  if (!is_float(from) && to == Element::f32) return static_cast<float>(x);
  if (!is_float(from) || is_float(to) || to == Element::i1) return x;
  if (std::isnan(x)) return 0;  // of floats to integers, the nearest one
  return to == Element::u32 ? std::clamp(std::trunc(x), 0.0, 4294967295.0)
                            : std::clamp(std::trunc(x), -2147483648.0, 2147483647.0);
}

}  // namespace chorale::test::hlo
