// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/host_layer.hpp>
#include <chorale/nn/layer.hpp>
#include <chorale/nn/tensor.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// y = gamma (x - mean) / sqrt(variance + 1e-5) + beta, with mean and variance of each vector of the last dimension.
///
/// x, y          (B, .., C)
/// gamma, beta   (C): ones, zeros
/// source        Ba et al., "Layer Normalization", 2016; torch.nn.LayerNorm, whose epsilon it has
struct LayerNorm : Layer<LayerNorm> {
  using Layer<LayerNorm>::Layer;
  static constexpr std::string_view name = "layer_normalization";
  static constexpr bool each_position    = true;

  template <class X>
  static constexpr void check() {
    static_assert(std::is_same_v<typename X::type, float> && X::rank > 0,
                  "chorale: LayerNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids");
  }
  template <int... D>
    requires(sizeof...(D) > 0)
  static constexpr auto output(Of<float, D...> x) { return x; }
  static constexpr auto variables(auto x) { return std::array{ones("gamma", x.back), zeros("beta", x.back)}; }
  static constexpr std::size_t kept(auto x) { return 2 * x.vectors; }

  static void forward(auto& at) {
    auto const c = at.v[0].size(), n = at.x().size() / c;
    for (std::size_t r = 0; r < n; ++r) {
      auto const x = at.x().subspan(r * c, c);
      auto mean = 0.0F, square = 0.0F;
      for (auto const v : x) mean += v;
      mean /= static_cast<float>(c);
      for (auto const v : x) square += (v - mean) * (v - mean);
      auto const scale   = 1 / std::sqrt(square / static_cast<float>(c) + 1e-5F);
      at.kept[2 * r]     = mean;
      at.kept[2 * r + 1] = scale;
      for (std::size_t i = 0; i < c; ++i) at.y()[r * c + i] = at.v[0][i] * (x[i] - mean) * scale + at.v[1][i];
    }
  }
  static void backward(auto& at) {
    auto const c = at.v[0].size(), n = at.x().size() / c;
    for (std::size_t r = 0; r < n; ++r) {
      auto const mean = at.kept[2 * r], scale = at.kept[2 * r + 1];
      auto const x  = at.x().subspan(r * c, c);
      auto const dy = at.dy().subspan(r * c, c);
      auto sum = 0.0F, dot = 0.0F;                                         // of dy gamma, and times x normalised
      for (std::size_t i = 0; i < c; ++i) {
        auto const z = (x[i] - mean) * scale;
        at.dv[0][i] += dy[i] * z;
        at.dv[1][i] += dy[i];
        sum += dy[i] * at.v[0][i];
        dot += dy[i] * at.v[0][i] * z;
      }
      for (std::size_t i = 0; i < c && !at.dx().empty(); ++i) {
        auto const z = (x[i] - mean) * scale;
        at.dx()[r * c + i] += scale * (dy[i] * at.v[0][i] - (sum + z * dot) / static_cast<float>(c));
      }
    }
  }
};

}  // namespace chorale::nn
