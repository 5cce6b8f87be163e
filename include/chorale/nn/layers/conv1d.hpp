// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/trace/layer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// y[b, t, f] = bias[f] + the sum over the window at t of x · kernel[:, :, f]
///
/// x         (B, T, C)
/// kernel    (Kernel, C / groups, Filters), Glorot uniform or as the option says; bias (Filters), zeros
/// y         (B, T', Filters); Pad<n>: T' = (T + 2 n - Kernel) / stride + 1; Same, Causal: T' = ceil(T / stride)
/// options   Valid, which is Pad<0>, Same, Pad<n> or Causal, Stride<n>, Dilation<n>, Groups<n>, NoBias, an initializer;
///           default Valid, Stride<1>, GlorotUniform. On Cpu
/// source    tf.keras.layers.Conv1D
template <int Filters, int Kernel, class... Options> struct Conv1D : Layer<Conv1D<Filters, Kernel, Options...>> {
  using Layer<Conv1D>::Layer;

  static constexpr std::string_view name = "conv1d";
  static constexpr auto padding          = detail::padding_of<Options...>();
  static constexpr int stride            = detail::stride_or<Options...>(1);
  static constexpr int dilation          = detail::dilation_or<Options...>(1);
  static constexpr int groups            = detail::groups_or<Options...>(1);
  static constexpr bool biased           = !(detail::bias_option<Options> || ...);
  static constexpr bool causal           = (std::is_same_v<Options, Causal> || ...);
  static constexpr bool is_sized         = Filters > 0 && Kernel > 0;

  static std::string text() {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    return "Conv1D<" + std::to_string(Filters) + "," + std::to_string(Kernel) + "," +
           (causal ? "Causal" : padding.text()) + ",Stride<" + std::to_string(stride) + ">,Dilation<" +
           std::to_string(dilation) + ">,Groups<" + std::to_string(groups) + ">," + std::string{text_of(init)} +
           (biased ? ">" : ",NoBias>");
  }

  static constexpr void check_size() {
    static_assert(is_sized, "chorale: Conv1D<Filters, Kernel> needs both to be at least 1");
  }
  template <class In> static constexpr void check() {
    static_assert(((detail::known_option<Options> || detail::bias_option<Options> || detail::dilation_option<Options> ||
                    detail::groups_option<Options> || std::is_same_v<Options, Causal>) &&
                   ...),
                  "chorale: Conv1D takes filters, a kernel size, then Valid, Same, Pad<n> or Causal, Stride<n>, "
                  "Dilation<n>, Groups<n>, NoBias, and an initializer");
    static_assert(In::rank == 2,
                  "chorale: Conv1D takes sequences (B, T, C), a vector of numbers for each step; put "
                  "nn::reshape<T, C>(...) before it");
    if constexpr (In::rank == 2) {
      static_assert(causal || detail::fits_image(window_on<In>(), padding),
                    "chorale: the kernel of this Conv1D is longer than the sequence; use a shorter one, or the option "
                    "Same");
      static_assert(In::dims[1] % groups == 0 && Filters % groups == 0,
                    "chorale: Conv1D with Groups<n> needs channels and filters that are multiples of n");
    }
  }

  template <class In> static constexpr Window window_on() {
    if constexpr (In::rank != 2) return {};
    else {
      auto w     = detail::padded({.height   = In::dims[0],
                                   .width    = 1,
                                   .channels = In::dims[1],
                                   .kernel   = Kernel,
                                   .stride   = stride,
                                   .columns  = 1,
                                   .dilation = dilation,
                                   .groups   = groups},
                                  padding);
      w.pad_left = w.pad_right = 0;
      if (causal) w.pad_before = (Kernel - 1) * dilation, w.pad_after = 0;
      return w;
    }
  }

  template <class In> struct apply {
    static constexpr auto around = causal ? detail::Padding{.same = true} : padding;
    static constexpr int steps   = decltype(detail::image_of<window_on<In>(), around, Filters>())::dims[0];
    using type                   = Shape<steps, Filters>;

    static constexpr int channels = std::max(1, (In::dims.empty() ? 1 : In::dims.back()) / groups);
    static constexpr int fan_in = Kernel * channels, fan_out = Kernel * Filters;
    static constexpr auto variables = [] {
      constexpr auto kernel = VariableSpec{
          "kernel", {Kernel, channels, Filters}, 3, detail::init_or<Options...>(Init::glorot_uniform), fan_in, fan_out};
      if constexpr (biased) return std::array{kernel, VariableSpec{"bias", {Filters}, 1, Init::zeros, fan_in, fan_out}};
      else return std::array{kernel};
    }();
    static constexpr std::size_t products = type::size * fan_in;
  };

  template <class D> static constexpr bool check_device() {
    constexpr bool fits = D::memory == Memory::host;
    static_assert(fits, "chorale: nn::Conv1D has no kernels for this device. Use a strategy over Cpu");
    return fits;
  }

  /// A convolution over an image of T rows and one column, in the layout of the sequence.
  template <class D, class In> struct stage : Kernels<D>::Conv2D {
    using Base                       = typename Kernels<D>::Conv2D;
    static constexpr bool overwrites = false, keeps_y = false;

    explicit stage(Site<D> const& site)
        : Base{site.runtime, Kernels<D>::image(site.rows, In::dims[0], 1, In::dims[1]),
               site.rows,    window_on<In>(),
               Filters,      site.wants_dx,
               biased,       Base::Images::channels_last},
          rows_{site.rows} {}

    auto out() const { return Kernels<D>::matrix(rows_, static_cast<int>(apply<In>::type::size)); }

   private:
    int rows_;
  };
};

}  // namespace chorale::nn
