// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// y = scale x / sqrt(mean of x² + epsilon), with the mean of each vector of the last dimension.
///
/// x, y      (B, .., C)
/// scale     (C), ones
/// options   Epsilon<millionths>, default Epsilon<1>
/// source    Zhang & Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019; tf.keras.layers.RMSNormalization
template <class... Options> struct RMSNorm : Layer<RMSNorm<Options...>> {
  using Layer<RMSNorm>::Layer;
  static constexpr std::string_view name = "rms_normalization";

  template <class X> static constexpr void check() {
    static_assert((detail::epsilon_option<Options> && ...), "chorale: RMSNorm takes one option, Epsilon<millionths>");
    static_assert(std::is_same_v<typename X::type, float> && X::rank > 0,
                  "chorale: RMSNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids");
  }
  template <int... D> requires(sizeof...(D) > 0) static constexpr auto output(Of<float, D...> x) { return x; }
  static constexpr auto variables(auto x) { return std::array{ones("scale", x.back)}; }
  static constexpr std::size_t kept(auto x) { return x.vectors; }

  static void forward(auto& at) {
    auto const c = at.v[0].size(), n = at.x().size() / c;
    for (std::size_t r = 0; r < n; ++r) {
      auto const* const x = &at.x()[r * c];
      auto const square   = cpu::sum_of(c, [&](std::size_t i) { return x[i] * x[i]; });
      auto const factor   = 1 / std::sqrt(square / static_cast<float>(c) + detail::epsilon_or<Options...>(1e-6F));
      at.kept[r]          = factor;
      for (std::size_t i = 0; i < c; ++i) at.y()[r * c + i] = at.v[0][i] * (x[i] * factor);
    }
  }
  static void backward(auto& at) {
    auto const c = at.v[0].size(), n = at.x().size() / c;
    for (std::size_t r = 0; r < n; ++r) {
      auto const factor     = at.kept[r];
      auto const* const x   = &at.x()[r * c];
      auto const* const dy  = &at.dy()[r * c];
      auto const* const own = at.v[0].data();
      for (std::size_t i = 0; i < c; ++i) at.dv[0][i] += dy[i] * (x[i] * factor);
      if (at.dx().empty()) continue;
      auto const dot  = cpu::sum_of(c, [&](std::size_t i) { return dy[i] * own[i] * x[i]; });
      auto const back = dot * factor * factor / static_cast<float>(c);
      for (std::size_t i = 0; i < c; ++i) at.dx()[r * c + i] += factor * (dy[i] * own[i] - x[i] * back);
    }
  }
};

}  // namespace chorale::nn
