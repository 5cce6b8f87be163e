// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layer.hpp>

#include <string>
#include <string_view>

namespace chorale::nn {

/// y[b, i, j, f] = bias[f] + the sum over the window at (i, j) of x · kernel[:, :, :, f]
///
/// x         (B, H, W, C)
/// kernel    (Kernel, Kernel, C, Filters), Glorot uniform or as the option says; bias (Filters), zeros
/// y         (B, H', W', Filters); Pad<n>: H' = (H + 2 n - Kernel) / stride + 1; Same: H' = ceil(H / stride)
/// options   Valid, which is Pad<0>, Same or Pad<n>, Stride<n>, NoBias, an initializer; default Valid, Stride<1>,
///           GlorotUniform
/// source    tf.keras.layers.Conv2D
template <int Filters, int Kernel, class... Options>
struct Conv2D : Layer<Conv2D<Filters, Kernel, Options...>> {
  using Layer<Conv2D>::Layer;

  static constexpr std::string_view name = "conv2d";
  static constexpr int filters           = Filters;
  static constexpr auto padding          = detail::padding_of<Options...>();
  static constexpr int stride            = detail::stride_or<Options...>(1);
  static constexpr bool biased           = !(detail::bias_option<Options> || ...);

  static std::string text() {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    return "Conv2D<" + std::to_string(Filters) + "," + std::to_string(Kernel) + "," + padding.text() + ",Stride<" +
           std::to_string(stride) + ">," + std::string{text_of(init)} + (biased ? ">" : ",NoBias>");
  }

  template <class In>
  static constexpr void check() {
    static_assert(Filters > 0 && Kernel > 0, "chorale: Conv2D<Filters, Kernel> needs both to be at least 1");
    static_assert(((detail::known_option<Options> || detail::bias_option<Options>) && ...),
                  "chorale: Conv2D takes filters, a kernel size, then Valid, Same or Pad<n>, Stride<n>, NoBias, and an "
                  "initializer");
    static_assert(In::rank == 3,
                  "chorale: Conv2D takes images (B, H, W, C) but the layer before gives rows of numbers");
    static_assert(detail::window_fits<In, Kernel, padding>,
                  "chorale: the kernel of this Conv2D is larger than the image; use a smaller one, or the option Same");
  }

  template <class In>
  struct apply {
    using type = decltype(detail::windowed<In, Filters, Kernel, stride, padding>());

    static constexpr int channels = In::dims.empty() ? 1 : In::dims.back();
    static constexpr int fan_in = Kernel * Kernel * channels, fan_out = Kernel * Kernel * Filters;
    static constexpr auto variables = [] {
      constexpr auto kernel = VariableSpec{
          "kernel", {Kernel, Kernel, channels, Filters}, 4, detail::init_or<Options...>(Init::glorot_uniform),
          fan_in,   fan_out};
      if constexpr (biased) return std::array{kernel, VariableSpec{"bias", {Filters}, 1, Init::zeros, fan_in, fan_out}};
      else return std::array{kernel};
    }();
    static constexpr std::size_t products = type::size * fan_in;
  };

  template <class In>
  static constexpr Window window_on() { return detail::window<In>(Kernel, stride, padding); }

  template <class D, class In>
  struct stage : Kernels<D>::Conv2D {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::Conv2D{site.runtime, site.in, site.rows, window_on<In>(), Filters, site.wants_dx,
                             biased} {}
  };
};

}  // namespace chorale::nn
