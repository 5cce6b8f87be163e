// SPDX-License-Identifier: Apache-2.0
//
// Activations with their first three derivatives: the second ones of a value, and the gradients of those, need them.
#pragma once

#include <chorale/nn/layers/activation.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/tensor/cpu/math.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <numbers>

namespace chorale::nn::detail {

/// A smooth function of a number: at(x) is f, f', f'' and f''' at x.
template <class L> struct Smooth;
// y = tanh(x)
template <> struct Smooth<Tanh> {
  static std::array<float, 4> at(float x) {
    auto const y = cpu::tanh(x), d = 1 - y * y;
    return {y, d, -2 * y * d, d * (6 * y * y - 2)};
  }
};
// y = 1 / (1 + exp(-x))
template <> struct Smooth<Sigmoid> {
  static std::array<float, 4> at(float x) {
    auto const y = cpu::sigmoid(x), d = y * (1 - y);
    return {y, d, d * (1 - 2 * y), d * (1 - 6 * d)};
  }
};
// y = log(1 + exp(x)), whose derivative is a sigmoid
template <> struct Smooth<Softplus> {
  static std::array<float, 4> at(float x) {
    auto const [s, d, d2, d3] = Smooth<Sigmoid>::at(x);
    return {std::max(x, 0.0F) + std::log1p(cpu::exp(-std::abs(x))), s, d, d2};
  }
};
// y = x sigmoid(x)
template <> struct Smooth<SiLU> {
  static std::array<float, 4> at(float x) {
    auto const [s, d, d2, d3] = Smooth<Sigmoid>::at(x);
    return {x * s, s + x * d, 2 * d + x * d2, 3 * d2 + x * d3};
  }
};
// y = x times the normal distribution, whose derivative is the density
template <> struct Smooth<GELU> {
  static std::array<float, 4> at(float x) {
    auto const below   = 0.5F * (1 + std::erf(x * std::numbers::sqrt2_v<float> / 2));
    auto const density = cpu::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
    return {x * below, below + x * density, density * (2 - x * x), density * x * (x * x - 4)};
  }
};
// A function of one's own
template <class L> requires std::derived_from<L, nn::Elementwise<L>> &&
                            requires(float x) { L::d2f(x, x), L::d3f(x, x); } struct Smooth<L> {
  static std::array<float, 4> at(float x) {
    auto const y = L::f(x);
    return {y, L::df(x, y), L::d2f(x, y), L::d3f(x, y)};
  }
};

template <class L> concept IsSmooth = requires(float x) { Smooth<L>::at(x); };

}  // namespace chorale::nn::detail
