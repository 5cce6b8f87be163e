// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// Option of PReLU: one slope for each channel, which all positions share. Keras: shared_axes with all axes but the last.
struct PerChannel {};

/// x where positive, else alpha x, with a trained slope alpha for each number of a row.
///
/// x, y      (B, .., C)
/// alpha     (.., C), zeros; with PerChannel (C)
/// options   PerChannel
/// source    He et al., "Delving Deep into Rectifiers", ICCV 2015; tf.keras.layers.PReLU
template <class... Options> struct PReLU : Layer<PReLU<Options...>> {
  using Layer<PReLU>::Layer;
  static constexpr std::string_view name = "p_re_lu";
  static constexpr bool per_channel      = (std::is_same_v<Options, PerChannel> || ...);

  template <class X>
  static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank > 0 && (per_channel || X::rank <= 4);

  template <class X> static constexpr void check() {
    static_assert((std::is_same_v<Options, PerChannel> && ...), "chorale: PReLU takes one option, nn::PerChannel");
    static_assert(fits<X>,
                  "chorale: PReLU takes numbers (B, .., C) of at most 4 dimensions, or of more with "
                  "nn::PerChannel");
  }
  template <int... D> requires fits<Of<float, D...>> static constexpr auto output(Of<float, D...> x) { return x; }
  template <int... D> static constexpr auto variables(Of<float, D...> x) {
    if constexpr (per_channel) return std::array{zeros("alpha", x.back)};
    else return std::array{zeros("alpha", D...)};
  }

  static void forward(auto& at) {
    auto const n = at.v[0].size();
    for (std::size_t r = 0; r < at.x().size(); r += n)
      for (std::size_t i = 0; i < n; ++i) {
        auto const x  = at.x()[r + i];
        at.y()[r + i] = x > 0 ? x : at.v[0][i] * x;
      }
  }
  static void backward(auto& at) {
    auto const n = at.v[0].size();
    for (std::size_t r = 0; r < at.x().size(); r += n) {
      for (std::size_t i = 0; i < n; ++i) at.dv[0][i] += at.x()[r + i] > 0 ? 0.0F : at.dy()[r + i] * at.x()[r + i];
      for (std::size_t i = 0; i < n && !at.dx().empty(); ++i)
        at.dx()[r + i] += at.x()[r + i] > 0 ? at.dy()[r + i] : at.v[0][i] * at.dy()[r + i];
    }
  }
};

}  // namespace chorale::nn
