// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/layer.hpp>

#include <string>
#include <string_view>

namespace chorale::nn {

namespace detail {

/// Base of both pools. x (B, H, W, C), y (B, H', W', C); options Valid, Same or Pad<n>, Stride<n>,
/// default Valid, Stride<Size>.
template <Pool P, int Size, class... Options> struct Pool2D {
  static constexpr Pool kind     = P;
  static constexpr auto padding  = padding_of<Options...>();
  static constexpr int stride    = stride_or<Options...>(Size);
  static constexpr bool is_sized = Size > 0;

  static std::string text() {
    return std::string{P == Pool::max ? "MaxPool2D<" : "AveragePool2D<"} + std::to_string(Size) + "," + padding.text() +
           ",Stride<" + std::to_string(stride) + ">>";
  }

  static constexpr void check_size() { static_assert(is_sized, "chorale: a pool needs a window of at least 1"); }
  template <class In> static constexpr void check() {
    static_assert((known_option<Options> && ...),
                  "chorale: a pool takes a window size, then Valid, Same or Pad<n>, and Stride<n>");
    static_assert(In::rank == 3,
                  "chorale: a pool takes images (B, H, W, C) but the layer before gives rows of numbers");
    static_assert(window_fits<In, Size, padding>,
                  "chorale: the window of this pool is larger than the image; use a smaller one, or the option Same");
  }

  template <class In> struct apply {
    static constexpr int channels = In::dims.empty() ? 1 : In::dims.back();
    using type                    = decltype(windowed<In, channels, Size, stride, padding>());
    static constexpr std::array<VariableSpec, 0> variables{};
  };

  template <class In> static constexpr Window window_on() { return window<In>(Size, stride, padding); }

  template <class D, class In> struct stage : Kernels<D>::Pool2D {
    static constexpr bool overwrites = false, keeps_y = false;
    explicit stage(Site<D> const& site) : Kernels<D>::Pool2D{site.runtime, site.in, site.rows, window_on<In>(), P} {}
  };
};

}  // namespace detail

/// The largest value of each window, per channel.
///
/// source  tf.keras.layers.MaxPool2D
template <int Size, class... Options>
struct MaxPool2D : detail::Pool2D<Pool::max, Size, Options...>, Layer<MaxPool2D<Size, Options...>> {
  static constexpr std::string_view name = "max_pooling2d";
  static constexpr bool picks            = true;  // y is one of x: monotone functions may be applied afterwards
};

/// The mean of each window, per channel; padding does not count.
///
/// source  tf.keras.layers.AveragePooling2D
template <int Size, class... Options>
struct AveragePool2D : detail::Pool2D<Pool::average, Size, Options...>, Layer<AveragePool2D<Size, Options...>> {
  static constexpr std::string_view name = "average_pooling2d";
};

}  // namespace chorale::nn
