// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with mean and variance of each group of neighbouring channels
/// over all positions of a row. One group for each channel is instance normalization.
///
/// x, y          (B, .., C), C a multiple of Groups
/// gamma, beta   (C): ones, zeros
/// options       Epsilon<millionths>, default Epsilon<1000>
/// source        Wu & He, "Group Normalization", ECCV 2018; tf.keras.layers.GroupNormalization
template <int Groups = 32, class... Options> struct GroupNorm : Layer<GroupNorm<Groups, Options...>> {
  using Layer<GroupNorm>::Layer;
  static constexpr std::string_view name = "group_normalization";

  template <class X>
  static constexpr bool fits =
      std::is_same_v<typename X::type, float> && X::rank > 0 && Groups > 0 && X::back % Groups == 0;

  template <class X> static constexpr void check() {
    static_assert((detail::epsilon_option<Options> && ...),
                  "chorale: GroupNorm takes a number of groups and one option, Epsilon<millionths>");
    static_assert(fits<X>, "chorale: GroupNorm<groups> takes numbers (B, .., C), with C a multiple of the groups");
  }
  template <int... D> requires fits<Of<float, D...>> static constexpr auto output(Of<float, D...> x) { return x; }
  static constexpr auto variables(auto x) { return std::array{ones("gamma", x.back), zeros("beta", x.back)}; }
  static constexpr std::size_t kept(auto) { return 2 * groups; }

  static void forward(auto& at) {
    each_group(at, [&](std::size_t first, std::size_t channel, std::size_t width, std::size_t n, std::size_t c,
                       float* kept) {
      auto const* const x = at.x().data() + first;
      auto const count    = static_cast<float>(n * width);
      auto mean = 0.0F, square = 0.0F;
      for (std::size_t p = 0; p < n; ++p)
        for (std::size_t i = 0; i < width; ++i) mean += x[p * c + i];
      mean /= count;
      for (std::size_t p = 0; p < n; ++p)
        for (std::size_t i = 0; i < width; ++i) square += (x[p * c + i] - mean) * (x[p * c + i] - mean);
      kept[0] = mean;
      kept[1] = 1 / std::sqrt(square / count + detail::epsilon_or<Options...>(1e-3F));
      for (std::size_t p = 0; p < n; ++p)
        for (std::size_t i = 0; i < width; ++i)
          at.y()[first + p * c + i] = at.v[0][channel + i] * ((x[p * c + i] - mean) * kept[1]) + at.v[1][channel + i];
    });
  }
  static void backward(auto& at) {
    each_group(at, [&](std::size_t first, std::size_t channel, std::size_t width, std::size_t n, std::size_t c,
                       float const* kept) {
      auto const mean = kept[0], scale = kept[1];
      auto const* const x     = at.x().data() + first;
      auto const* const dy    = at.dy().data() + first;
      auto const* const gamma = at.v[0].data() + channel;
      auto sum = 0.0F, dot = 0.0F;  // of dy gamma, and times x normalised
      for (std::size_t p = 0; p < n; ++p)
        for (std::size_t i = 0; i < width; ++i) {
          auto const d = dy[p * c + i], z = (x[p * c + i] - mean) * scale;
          at.dv[0][channel + i] += d * z;
          at.dv[1][channel + i] += d;
          sum += d * gamma[i];
          dot += d * gamma[i] * z;
        }
      if (at.dx().empty()) return;
      auto const count = static_cast<float>(n * width);
      for (std::size_t p = 0; p < n; ++p)
        for (std::size_t i = 0; i < width; ++i) {
          auto const z = (x[p * c + i] - mean) * scale;
          at.dx()[first + p * c + i] += scale * (dy[p * c + i] * gamma[i] - (sum + z * dot) / count);
        }
    });
  }

 private:
  static constexpr std::size_t groups = Groups;

  /// Calls f(first number in x, first channel, channels of the group, positions, channels of x, what it keeps) for each
  /// group of each row.
  static void each_group(auto& at, auto&& f) {
    auto const c = at.v[0].size(), n = at.x().size() / at.rows / c, width = c / groups;
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t g = 0; g < groups; ++g)
        f(r * n * c + g * width, g * width, width, n, c, at.kept.data() + 2 * (r * groups + g));
  }
};

}  // namespace chorale::nn
