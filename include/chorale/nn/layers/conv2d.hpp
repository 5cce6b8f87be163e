// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/device.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <algorithm>
#include <string>
#include <string_view>

namespace chorale::nn {

// Options of convolutions, in addition to the options in layer.hpp.

/// Columns of a kernel that is not square: Conv2D<32, 3, KernelWidth<5>> has kernels of 3 rows and 5 columns.
template <int Columns> struct KernelWidth {
  static_assert(Columns > 0, "chorale: KernelWidth<columns> needs at least 1");
  static constexpr int columns = Columns;
};

/// Distance between the pixels that a kernel reads, in both directions. Keras: dilation_rate=N.
template <int N> struct Dilation {
  static_assert(N > 0, "chorale: Dilation<N> needs at least 1");
  static constexpr int dilation = N;
};

/// Groups of channels: each makes its own part of the filters. Keras: groups=N.
template <int N> struct Groups {
  static_assert(N > 0, "chorale: Groups<N> needs at least 1");
  static constexpr int groups = N;
};

namespace detail {

template <class T> concept columns_option  = requires { T::columns; };
template <class T> concept dilation_option = requires { T::dilation; };
template <class T> concept groups_option   = requires { T::groups; };

template <class... Options> constexpr int columns_or(int fallback) {
  auto columns = fallback;
  (
      [&] {
        if constexpr (columns_option<Options>) columns = Options::columns;
      }(),
      ...);
  return columns;
}
template <class... Options> constexpr int dilation_or(int fallback) {
  auto dilation = fallback;
  (
      [&] {
        if constexpr (dilation_option<Options>) dilation = Options::dilation;
      }(),
      ...);
  return dilation;
}
template <class... Options> constexpr int groups_or(int fallback) {
  auto groups = fallback;
  (
      [&] {
        if constexpr (groups_option<Options>) groups = Options::groups;
      }(),
      ...);
  return groups;
}

/// True if every window is within the padded image, and none is in the padding alone.
constexpr bool fits_image(Window const& w, Padding padding) {
  if (padding.same) return true;
  auto const fits = [&](int size, int kernel, int around) {
    auto const reach = (kernel - 1) * w.dilation + 1;
    return around < reach && size + 2 * around >= reach;
  };
  return fits(w.height, w.kernel, w.pad_before) && fits(w.width, w.kernel_width(), w.pad_left);
}

/// Shape of the output of a window. If the window does not fit, some valid shape, so that the error of check() is the
/// only one.
template <Window W, Padding Around, int Channels> constexpr auto image_of() {
  if constexpr (W.height == 0 || !fits_image(W, Around)) return Shape<1, 1, Channels>{};
  else return Shape<W.out_height(), W.out_width(), Channels>{};
}

}  // namespace detail

/// y[b, i, j, f] = bias[f] + the sum over the window at (i, j) of x · kernel[:, :, :, f]
///
/// x         (B, H, W, C)
/// kernel    (Kernel, Kernel, C / groups, Filters), Glorot uniform or as the option says; bias (Filters), zeros
/// y         (B, H', W', Filters); Pad<n>: H' = (H + 2 n - Kernel) / stride + 1; Same: H' = ceil(H / stride)
/// options   Valid, which is Pad<0>, Same or Pad<n>, Stride<n>, NoBias, an initializer; KernelWidth<n>, Dilation<n>,
///           Groups<n>, on Cpu; default Valid, Stride<1>, GlorotUniform
/// source    tf.keras.layers.Conv2D
template <int Filters, int Kernel, class... Options> struct Conv2D : Layer<Conv2D<Filters, Kernel, Options...>> {
  using Layer<Conv2D>::Layer;

  static constexpr std::string_view name = "conv2d";
  static constexpr int filters           = Filters;
  static constexpr auto padding          = detail::padding_of<Options...>();
  static constexpr int stride            = detail::stride_or<Options...>(1);
  static constexpr bool biased           = !(detail::bias_option<Options> || ...);
  static constexpr int columns           = detail::columns_or<Options...>(Kernel);
  static constexpr int dilation          = detail::dilation_or<Options...>(1);
  static constexpr int groups            = detail::groups_or<Options...>(1);
  static constexpr bool is_plain         = columns == Kernel && dilation == 1 && groups == 1;
  static constexpr bool is_sized         = Filters > 0 && Kernel > 0;

  static std::string text() {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    return "Conv2D<" + std::to_string(Filters) + "," + std::to_string(Kernel) + "," + padding.text() + ",Stride<" +
           std::to_string(stride) + ">," + std::string{text_of(init)} + (biased ? "" : ",NoBias") +
           (columns == Kernel ? "" : ",KernelWidth<" + std::to_string(columns) + ">") +
           (dilation == 1 ? "" : ",Dilation<" + std::to_string(dilation) + ">") +
           (groups == 1 ? "" : ",Groups<" + std::to_string(groups) + ">") + ">";
  }

  static constexpr void check_size() {
    static_assert(is_sized, "chorale: Conv2D<Filters, Kernel> needs both to be at least 1");
  }
  template <class In> static constexpr void check() {
    static_assert(((detail::known_option<Options> || detail::bias_option<Options> || detail::columns_option<Options> ||
                    detail::dilation_option<Options> || detail::groups_option<Options>) &&
                   ...),
                  "chorale: Conv2D takes filters, a kernel size, then Valid, Same or Pad<n>, Stride<n>, NoBias, "
                  "KernelWidth<n>, Dilation<n>, Groups<n>, and an initializer");
    static_assert(In::rank == 3,
                  "chorale: Conv2D takes images (B, H, W, C) but the layer before gives rows of numbers");
    if constexpr (In::rank == 3) {
      static_assert(
          detail::fits_image(window_on<In>(), padding),
          "chorale: the kernel of this Conv2D is larger than the image; use a smaller one, or the option Same");
      static_assert(In::dims[2] % groups == 0 && Filters % groups == 0,
                    "chorale: Conv2D with Groups<n> needs channels and filters that are multiples of n");
    }
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
                             .groups   = groups},
                            padding);
  }

  template <class In> struct apply {
    using type                    = decltype(detail::image_of<window_on<In>(), padding, Filters>());
    static constexpr int channels = std::max(1, (In::dims.empty() ? 1 : In::dims.back()) / groups);
    static constexpr int fan_in = Kernel * columns * channels, fan_out = Kernel * columns * Filters;
    static constexpr auto variables = [] {
      constexpr auto kernel = VariableSpec{"kernel", {Kernel, columns, channels, Filters},
                                           4,        detail::init_or<Options...>(Init::glorot_uniform),
                                           fan_in,   fan_out};
      if constexpr (biased) return std::array{kernel, VariableSpec{"bias", {Filters}, 1, Init::zeros, fan_in, fan_out}};
      else return std::array{kernel};
    }();
    static constexpr std::size_t products = type::size * fan_in;
  };

  template <class D> static constexpr bool check_device() {
    constexpr bool fits = is_plain || D::memory == Memory::host;
    static_assert(fits,
                  "chorale: nn::Conv2D with KernelWidth, Dilation or Groups has no kernels for this device. Use "
                  "a strategy over Cpu");
    return fits;
  }

  template <class D, class In> struct stage : Kernels<D>::Conv2D {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site)
        : Kernels<D>::Conv2D{site.runtime, site.in, site.rows, window_on<In>(), Filters, site.wants_dx, biased} {}
  };
};

}  // namespace chorale::nn
