// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/cpu/math.hpp>

#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// y = x / |x|, for each vector of the last dimension, so that the product of two is the cosine of their angle. A vector
/// shorter than 1e-12, such as one of zeros, gives zeros and gets no gradient.
///
/// x, y      (B, .., C)
/// source    tf.keras.layers.UnitNormalization, torch.nn.functional.normalize: both divide short vectors by 1e-12
struct UnitNorm : Layer<UnitNorm> {
  static constexpr std::string_view name = "unit_normalization";
  static constexpr bool each_position    = true;

  template <class X> static constexpr void check() {
    static_assert(std::is_same_v<typename X::type, float> && X::rank > 0,
                  "chorale: UnitNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids");
  }
  template <int... D> requires(sizeof...(D) > 0) static constexpr auto output(Of<float, D...> x) { return x; }
  static constexpr std::size_t kept(auto x) { return x.vectors; }

  template <int... D, class Out> static void forward(Place<UnitNorm, detail::List<Of<float, D...>>, Out>& at) {
    constexpr std::size_t c = Of<float, D...>::back;
    for (std::size_t r = 0; r < at.x().size() / c; ++r) {
      auto const* const x = at.x().data() + r * c;
      auto* const y       = at.y().data() + r * c;
      auto const length   = std::sqrt(cpu::sum_of(c, [=](std::size_t i) { return x[i] * x[i]; }));
      at.kept[r]          = length < 1e-12F ? 0 : 1 / length;
      for (std::size_t i = 0; i < c; ++i) y[i] = x[i] * at.kept[r];
    }
  }
  template <int... D, class Out> static void backward(Place<UnitNorm, detail::List<Of<float, D...>>, Out>& at) {
    if (at.dx().empty()) return;
    constexpr std::size_t c = Of<float, D...>::back;
    for (std::size_t r = 0; r < at.x().size() / c; ++r) {
      auto const* const x  = at.x().data() + r * c;
      auto const* const dy = at.dy().data() + r * c;
      auto* const dx       = at.dx().data() + r * c;
      auto const scale     = at.kept[r];
      auto const along     = scale * cpu::sum_of(c, [=](std::size_t i) { return dy[i] * x[i] * scale; });
      for (std::size_t i = 0; i < c; ++i) dx[i] += scale * (dy[i] - x[i] * along);
    }
  }
};

}  // namespace chorale::nn
