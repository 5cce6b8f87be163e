// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace chorale::nn {

/// The transpose of a convolution: each pixel of x adds kernel · x to a window of y, whose distance from the next one is
/// the stride. A convolution of y with these options has the shape of x.
///
/// x         (B, H, W, C)
/// kernel    (Kernel, Kernel, Filters, C), Glorot uniform or as the option says; bias (Filters), zeros
/// y         (B, H', W', Filters); Valid: H' = (H - 1) stride + Kernel; Same: H' = H stride
/// options   Valid or Same, Stride<n>, NoBias, an initializer; default Valid, Stride<1>, GlorotUniform. On Cpu
/// source    tf.keras.layers.Conv2DTranspose, for kernels at least as large as the stride
template <int Filters, int Kernel, class... Options>
struct Conv2DTranspose : Layer<Conv2DTranspose<Filters, Kernel, Options...>> {
  using Layer<Conv2DTranspose>::Layer;

  static constexpr std::string_view name = "conv2d_transpose";
  static constexpr auto padding          = detail::padding_of<Options...>();
  static constexpr int stride            = detail::stride_or<Options...>(1);
  static constexpr bool biased           = !(detail::bias_option<Options> || ...);
  static constexpr bool is_sized         = Filters > 0 && Kernel > 0;

  static std::string text() {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    return "Conv2DTranspose<" + std::to_string(Filters) + "," + std::to_string(Kernel) + "," + padding.text() +
           ",Stride<" + std::to_string(stride) + ">," + std::string{text_of(init)} + (biased ? ">" : ",NoBias>");
  }

  static constexpr void check_size() {
    static_assert(is_sized, "chorale: Conv2DTranspose<Filters, Kernel> needs both to be at least 1");
  }
  template <class In> static constexpr void check() {
    static_assert(((detail::known_option<Options> || detail::bias_option<Options>) && ...) && padding.pixels == 0,
                  "chorale: Conv2DTranspose takes filters, a kernel size, then Valid or Same, Stride<n>, NoBias, and "
                  "an initializer");
    static_assert(Kernel >= stride,
                  "chorale: Conv2DTranspose needs a kernel at least as large as its stride, as other "
                  "pixels of y would be the bias alone");
    static_assert(In::rank == 3,
                  "chorale: Conv2DTranspose takes images (B, H, W, C) but what comes in has another shape; put "
                  "nn::reshape<H, W, C>(...) before it");
  }

  /// The window of the convolution that this layer transposes.
  template <class In> static constexpr Window window_on() {
    if constexpr (In::rank != 3) return {};
    else {
      constexpr auto out = [](int size) { return padding.same ? size * stride : (size - 1) * stride + Kernel; };
      return detail::padded({.height   = out(In::dims[0]),
                             .width    = out(In::dims[1]),
                             .channels = Filters,
                             .kernel   = Kernel,
                             .stride   = stride},
                            padding);
    }
  }

  template <class In> struct apply {
    static constexpr auto window = window_on<In>();
    using type                   = Shape<std::max(1, window.height), std::max(1, window.width), Filters>;

    static constexpr int channels = In::dims.empty() ? 1 : In::dims.back();
    static constexpr int fan_in = Kernel * Kernel * Filters, fan_out = Kernel * Kernel * channels;
    static constexpr auto variables = [] {
      constexpr auto kernel = VariableSpec{"kernel", {Kernel, Kernel, Filters, channels},
                                           4,        detail::init_or<Options...>(Init::glorot_uniform),
                                           fan_in,   fan_out};
      if constexpr (biased) return std::array{kernel, VariableSpec{"bias", {Filters}, 1, Init::zeros, fan_in, fan_out}};
      else return std::array{kernel};
    }();
    static constexpr std::size_t products = In::size * fan_in;
  };

  template <class D> static constexpr bool check_device() {
    constexpr bool fits = D::memory == Memory::host;
    static_assert(fits, "chorale: nn::Conv2DTranspose has no kernels for this device. Use a strategy over Cpu");
    return fits;
  }

  template <class D, class In> struct stage : Kernels<D>::Conv2DTranspose {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::Conv2DTranspose{site.runtime, site.in, site.rows, window_on<In>(), apply<In>::channels, biased} {}
  };
};

}  // namespace chorale::nn
