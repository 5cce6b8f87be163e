// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>
#include <chorale/tensor/kernels.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale::nn {

namespace detail {

/// What every layer normalization computes; `Options` set its epsilon.
template <class L, class... Options> struct LayerNormOf : Layer<L> {
  using Layer<L>::Layer;
  static constexpr std::string_view name = "layer_normalization";
  static constexpr bool each_position    = true;
  static constexpr float epsilon         = epsilon_or<Options...>(1e-5F);

  template <class X> static constexpr void check() {
    static_assert((epsilon_option<Options> && ...),
                  "chorale: LayerNormWith takes one option, Epsilon<millionths> or EpsilonPower<power>");
    static_assert(std::is_same_v<typename X::type, float> && X::rank > 0,
                  "chorale: LayerNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids");
  }
  template <int... D> requires(sizeof...(D) > 0) static constexpr auto output(Of<float, D...> x) { return x; }
  static constexpr auto variables(auto x) { return std::array{ones("gamma", x.back), zeros("beta", x.back)}; }
  static constexpr std::size_t kept(auto x) { return 2 * x.vectors; }

  template <int... D, class Out> static void forward(Place<L, List<Of<float, D...>>, Out>& at) {
    constexpr std::size_t c = Of<float, D...>::back;
    auto const* const gamma = at.v[0].data();
    auto const* const beta  = at.v[1].data();
    for (std::size_t r = 0; r < at.x().size() / c; ++r) {
      auto const* const x = at.x().data() + r * c;
      auto* const y       = at.y().data() + r * c;
      auto const mean     = cpu::sum_of(c, [=](std::size_t i) { return x[i]; }) / static_cast<float>(c);
      auto const square   = cpu::sum_of(c, [=](std::size_t i) { return (x[i] - mean) * (x[i] - mean); });
      auto const scale    = 1 / std::sqrt(square / static_cast<float>(c) + epsilon);
      at.kept[2 * r]      = mean;
      at.kept[2 * r + 1]  = scale;
      for (std::size_t i = 0; i < c; ++i) y[i] = gamma[i] * (x[i] - mean) * scale + beta[i];
    }
  }
  template <int... D, class Out> static void backward(Place<L, List<Of<float, D...>>, Out>& at) {
    backward_into(at, [&](std::size_t) { return std::pair{at.dv[0].data(), at.dv[1].data()}; });
  }
  /// sums(r)   where the gradients of gamma and beta of vector r are added up
  template <int... D, class Out, class Sums>
  static void backward_into(Place<L, List<Of<float, D...>>, Out>& at, Sums const& sums) {
    constexpr std::size_t c = Of<float, D...>::back;
    auto const* const gamma = at.v[0].data();
    auto z                  = std::array<float, c>{};  // x normalised
    auto g                  = std::array<float, c>{};  // the gradient by it
    for (std::size_t r = 0; r < at.x().size() / c; ++r) {
      auto const mean = at.kept[2 * r], scale = at.kept[2 * r + 1];
      auto const [d_gamma, d_beta] = sums(r);
      auto const* const x          = at.x().data() + r * c;
      auto const* const dy         = at.dy().data() + r * c;
      for (std::size_t i = 0; i < c; ++i) z[i] = (x[i] - mean) * scale;
      for (std::size_t i = 0; i < c; ++i) g[i] = dy[i] * gamma[i];
      for (std::size_t i = 0; i < c; ++i) d_gamma[i] += dy[i] * z[i];
      for (std::size_t i = 0; i < c; ++i) d_beta[i] += dy[i];
      if (at.dx().empty()) continue;
      auto* const dx = at.dx().data() + r * c;
      auto const sum = cpu::sum_of(c, [&](std::size_t i) { return g[i]; }) / static_cast<float>(c);
      auto const dot = cpu::sum_of(c, [&](std::size_t i) { return g[i] * z[i]; }) / static_cast<float>(c);
      for (std::size_t i = 0; i < c; ++i) dx[i] += scale * (g[i] - (sum + z[i] * dot));
    }
  }
  template <class D> static void queue_forward(auto& at) {
    constexpr auto c = std::remove_cvref_t<decltype(at)>::X::back;
    Kernels<D>::layer_norm(at.x().size() / c, c, at.x().data(), at.v[0].data(), at.v[1].data(), epsilon, at.kept.data(),
                           at.y().data());
  }
  template <class D> static void queue_backward(auto& at) {
    constexpr auto c = std::remove_cvref_t<decltype(at)>::X::back;
    Kernels<D>::layer_norm_back(at.x().size() / c, c, at.x().data(), at.v[0].data(), at.kept.data(), at.dy().data(),
                                at.dv[0].data(), at.dv[1].data(), at.dx().data());
  }
};

}  // namespace detail

/// y = gamma (x - mean) / sqrt(variance + 1e-5) + beta, with mean and variance of each vector of the last dimension.
///
/// x, y          (B, .., C)
/// gamma, beta   (C): ones, zeros
/// source        Ba et al., "Layer Normalization", 2016; torch.nn.LayerNorm, whose epsilon it has
struct LayerNorm : detail::LayerNormOf<LayerNorm> {
  using detail::LayerNormOf<LayerNorm>::LayerNormOf;
};

/// LayerNorm with another epsilon: LayerNormWith<EpsilonPower<12>> as in BERT, LayerNormWith<Epsilon<1000>> as in
/// tf.keras.layers.LayerNormalization.
template <class... Options> struct LayerNormWith : detail::LayerNormOf<LayerNormWith<Options...>, Options...> {
  using detail::LayerNormOf<LayerNormWith, Options...>::LayerNormOf;
};

}  // namespace chorale::nn
