// SPDX-License-Identifier: Apache-2.0
//
// Functions of numbers and of short rows for loops that the compiler turns into vector instructions: libm's are a call
// for each number, and a sum in one order is a chain of additions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace chorale::cpu {

/// e to the power of x, without a branch or a call.
///
/// x         any number; NaN gives NaN
/// returns   relative error at most 1e-7; 0 below -87.3, where the result would be subnormal, and e^87.3 above 87.3
/// source    Cody & Waite's reduction to |r| <= ln 2 / 2; the polynomial of Cephes' expf
inline float exp(float x) {
  constexpr float log2_e = 1.44269504F, shift = 12'582'912.0F;         // 1.5 · 2^23: adding it rounds to an integer
  constexpr float ln2_high = 0.693359375F, ln2_low = -2.12194440e-4F;  // n · the first is exact
  // Compared as integers: compilers do not make vector instructions of a choice between floats, which may trap.
  constexpr auto most = std::bit_cast<std::int32_t>(87.3F), infinite = std::int32_t{0x7f80'0000};
  auto const bits = std::bit_cast<std::int32_t>(x), size = bits & 0x7fff'ffff;
  auto const far   = -static_cast<std::int32_t>((size > most) & (size <= infinite));  // all bits, or none
  auto const near  = std::bit_cast<float>((far & most) | (~far & size) | (bits & ~0x7fff'ffff));
  auto const whole = near * log2_e + shift;
  auto const n     = whole - shift;
  auto const r     = (near - n * ln2_high) - n * ln2_low;
  auto p           = 1.9875691500e-4F;
  p                = p * r + 1.3981999507e-3F;
  p                = p * r + 8.3334519073e-3F;
  p                = p * r + 4.1665795894e-2F;
  p                = p * r + 1.6666665459e-1F;
  p                = p * r + 5.0000001201e-1F;
  p                = p * (r * r) + r + 1.0F;
  auto const power = std::bit_cast<std::int32_t>(whole) - std::bit_cast<std::int32_t>(shift) + 127;
  auto const y     = p * std::bit_cast<float>(static_cast<std::uint32_t>(power) << 23U);
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(y) & ~(far & (bits >> 31)));
}

/// 1 / (1 + exp(-x))
inline float sigmoid(float x) { return 1 / (1 + cpu::exp(-x)); }
/// The hyperbolic tangent, to 1e-7 of its largest value.
inline float tanh(float x) { return 1 - 2 / (1 + cpu::exp(2 * x)); }

/// The sum of f(0) to f(n - 1), added up in 16 lanes: the same bits for the same numbers.
template <class F> inline float sum_of(std::size_t n, F&& f) {
  constexpr std::size_t width = 16;
  auto lanes                  = std::array<float, width>{};
  auto i                      = std::size_t{0};
  for (; i + width <= n; i += width)
    for (std::size_t k = 0; k < width; ++k) lanes[k] += f(i + k);
  for (std::size_t k = 0; k < n % width; ++k) lanes[k] += f(i + k);
  for (std::size_t half = width / 2; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  return lanes[0];
}

/// The sum of f(0) to f(n - 1) for any n: blocks in 16 lanes, and these in double. See sum_over(), which is for
/// functions that do not become vector instructions.
template <class F> inline double sum_of_many(std::size_t n, F&& f) {
  constexpr std::size_t block = 256;
  auto sum                    = 0.0;
  for (std::size_t begin = 0; begin < n; begin += block)
    sum += static_cast<double>(sum_of(std::min(block, n - begin), [&](std::size_t i) { return f(begin + i); }));
  return sum;
}

/// The largest of n numbers, at least one.
inline float largest(std::size_t n, float const* x) {
  constexpr std::size_t width = 16;
  auto lanes                  = std::array<float, width>{};
  lanes.fill(x[0]);
  auto i = std::size_t{0};
  for (; i + width <= n; i += width)
    for (std::size_t k = 0; k < width; ++k) lanes[k] = lanes[k] < x[i + k] ? x[i + k] : lanes[k];
  for (std::size_t k = 0; k < n % width; ++k) lanes[k] = lanes[k] < x[i + k] ? x[i + k] : lanes[k];
  return *std::max_element(lanes.begin(), lanes.end());
}

/// p = exp(x) / Σ exp(x), n numbers; p may be x.
///
/// returns   log Σ exp(x)
inline float softmax(std::size_t n, float const* x, float* p) {
  auto const top = largest(n, x);
  for (std::size_t i = 0; i < n; ++i) p[i] = cpu::exp(x[i] - top);
  auto const z     = sum_of(n, [p](std::size_t i) { return p[i]; });
  auto const share = 1 / z;
  for (std::size_t i = 0; i < n; ++i) p[i] *= share;
  return top + std::log(z);
}

}  // namespace chorale::cpu
