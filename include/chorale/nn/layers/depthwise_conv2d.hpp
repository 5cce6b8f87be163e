// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of each channel by itself, alone or followed by a product over the channels.
#pragma once

#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace chorale::nn {

/// Option of DepthwiseConv2D: filters for each channel. Keras: depth_multiplier=N.
template <int N> struct DepthMultiplier {
  static_assert(N > 0, "chorale: DepthMultiplier<N> needs at least 1");
  static constexpr int multiplier = N;
};

namespace detail {

template <class T> concept multiplier_option = requires { T::multiplier; };

template <class... Options> constexpr int multiplier_or(int fallback) {
  auto multiplier = fallback;
  (
      [&] {
        if constexpr (multiplier_option<Options>) multiplier = Options::multiplier;
      }(),
      ...);
  return multiplier;
}

}  // namespace detail

/// y[b, i, j, c m + k] = bias[c m + k] + the sum over the window at (i, j) of x[.., c] · kernel[:, :, c, k], with m
/// filters for each channel.
///
/// x         (B, H, W, C)
/// kernel    (Kernel, Kernel, C, m), Glorot uniform or as the option says; bias (C m), zeros
/// y         (B, H', W', C m), with H' and W' as in Conv2D
/// options   DepthMultiplier<m>, default 1, and the options of Conv2D without Groups<n>. On Cpu
/// source    tf.keras.layers.DepthwiseConv2D
template <int Kernel, class... Options> struct DepthwiseConv2D : Layer<DepthwiseConv2D<Kernel, Options...>> {
  using Layer<DepthwiseConv2D>::Layer;

  static constexpr std::string_view name = "depthwise_conv2d";
  static constexpr auto padding          = detail::padding_of<Options...>();
  static constexpr int stride            = detail::stride_or<Options...>(1);
  static constexpr int columns           = detail::columns_or<Options...>(Kernel);
  static constexpr int dilation          = detail::dilation_or<Options...>(1);
  static constexpr int multiplier        = detail::multiplier_or<Options...>(1);
  static constexpr bool biased           = !(detail::bias_option<Options> || ...);
  static constexpr bool is_sized         = Kernel > 0;

  static std::string text() {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    return "DepthwiseConv2D<" + std::to_string(Kernel) + "x" + std::to_string(columns) + "," + padding.text() +
           ",Stride<" + std::to_string(stride) + ">,Dilation<" + std::to_string(dilation) + ">,DepthMultiplier<" +
           std::to_string(multiplier) + ">," + std::string{text_of(init)} + (biased ? ">" : ",NoBias>");
  }

  static constexpr void check_size() { static_assert(is_sized, "chorale: DepthwiseConv2D<Kernel> needs at least 1"); }
  template <class In> static constexpr void check() {
    static_assert(((detail::known_option<Options> || detail::bias_option<Options> || detail::columns_option<Options> ||
                    detail::dilation_option<Options> || detail::multiplier_option<Options>) &&
                   ...),
                  "chorale: DepthwiseConv2D takes a kernel size, then Valid, Same or Pad<n>, Stride<n>, NoBias, "
                  "KernelWidth<n>, Dilation<n>, DepthMultiplier<n>, and an initializer");
    static_assert(In::rank == 3,
                  "chorale: DepthwiseConv2D takes images (B, H, W, C) but what comes in has another shape; put "
                  "nn::reshape<H, W, C>(...) before it");
    if constexpr (In::rank == 3)
      static_assert(detail::fits_image(window_on<In>(), padding),
                    "chorale: the kernel of this DepthwiseConv2D is larger than the image; use a smaller one, or the "
                    "option Same");
  }

  template <class In> static constexpr Window window_on() {
    if constexpr (In::rank != 3) return {};
    else
      return detail::padded({.height   = In::dims[0],
                             .width    = In::dims[1],
                             .channels = In::dims[2],
                             .kernel   = Kernel,
                             .stride   = stride,
                             .columns  = columns,
                             .dilation = dilation,
                             .groups   = In::dims[2]},
                            padding);
  }

  template <class In> struct apply {
    static constexpr int channels = In::dims.empty() ? 1 : In::dims.back(), filters = channels * multiplier;
    using type = decltype(detail::image_of<window_on<In>(), padding, filters>());

    static constexpr int fan_in = Kernel * columns * channels, fan_out = Kernel * columns * multiplier;
    static constexpr auto variables = [] {
      constexpr auto kernel = VariableSpec{"kernel", {Kernel, columns, channels, multiplier},
                                           4,        detail::init_or<Options...>(Init::glorot_uniform),
                                           fan_in,   fan_out};
      if constexpr (biased) return std::array{kernel, VariableSpec{"bias", {filters}, 1, Init::zeros, fan_in, fan_out}};
      else return std::array{kernel};
    }();
    static constexpr std::size_t products = type::size * Kernel * columns;
  };

  template <class D> static constexpr bool check_device() {
    constexpr bool fits = D::memory == Memory::host;
    static_assert(fits, "chorale: nn::DepthwiseConv2D has no kernels for this device. Use a strategy over Cpu");
    return fits;
  }

  template <class D, class In> struct stage : Kernels<D>::Conv2D {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::Conv2D{site.runtime,       site.in,       site.rows, window_on<In>(),
                             apply<In>::filters, site.wants_dx, biased} {}
  };
};

/// A convolution of each channel by itself, then one of single pixels over all channels.
///
/// x         (B, H, W, C)
/// y         (B, H', W', Filters), with H' and W' as in Conv2D
/// options   of DepthwiseConv2D, without NoBias and initializers; both layers have their default initializers
/// keeps     it has the variables of two layers: "depthwise_conv2d/kernel" is Keras' depthwise_kernel,
///           "conv2d/kernel" its pointwise_kernel, and "conv2d/bias" its bias
/// source    Chollet, "Xception", CVPR 2017; tf.keras.layers.SeparableConv2D
template <int Filters, int Kernel, class... Options> struct SeparableConv2D {
  DepthwiseConv2D<Kernel, NoBias, Options...> each_channel;
  Conv2D<Filters, 1> over_channels;

  constexpr auto operator()(auto x) const { return over_channels(each_channel(x)); }
};

}  // namespace chorale::nn
