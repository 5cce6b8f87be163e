// SPDX-License-Identifier: Apache-2.0
//
// Pools over the steps of a sequence, and over all positions of a sequence or an image.
#pragma once

#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

namespace detail {

/// Writes the largest of n vectors to y, and which vector it is from to `winner`: the first of equal ones.
inline void largest(std::size_t n, std::size_t width, float const* x, float* y, float* winner) {
  std::copy_n(x, width, y);
  std::fill_n(winner, width, 0.0F);
  for (std::size_t i = 1; i < n; ++i)
    for (std::size_t c = 0; c < width; ++c) {
      auto const above = x[i * width + c] > y[c];
      winner[c]        = above ? static_cast<float>(i) : winner[c];
      y[c]             = above ? x[i * width + c] : y[c];
    }
}
/// Adds the gradient by y to that by the largest of n vectors.
inline void largest_back(std::size_t width, float const* dy, float const* winner, float* dx) {
  for (std::size_t c = 0; c < width; ++c) dx[static_cast<std::size_t>(winner[c]) * width + c] += dy[c];
}
/// Writes the mean of n vectors to y.
inline void mean(std::size_t n, std::size_t width, float const* x, float* y) {
  std::copy_n(x, width, y);
  for (std::size_t i = 1; i < n; ++i)
    for (std::size_t c = 0; c < width; ++c) y[c] += x[i * width + c];
  for (std::size_t c = 0; c < width; ++c) y[c] /= static_cast<float>(n);
}
inline void mean_back(std::size_t n, std::size_t width, float const* dy, float* dx) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < width; ++c) dx[i * width + c] += dy[c] / static_cast<float>(n);
}

/// Base of the pools over sequences. x (B, T, C), y (B, T', C); options Valid, Same or Pad<n>, Stride<n>, default
/// Valid, Stride<Size>.
template <class L, Pool P, int Size, class... Options> struct Pool1D : Layer<L> {
  static constexpr bool keeps_x  = false;
  static constexpr auto padding  = padding_of<Options...>();
  static constexpr int stride    = stride_or<Options...>(Size);
  static constexpr bool is_sized = Size > 0;

  template <class X>
  static constexpr Window window = [] {
    auto w     = padded({.height   = X::rank == 2 ? X::dims[0] : 1,
                         .width    = 1,
                         .channels = X::back,
                         .kernel   = Size,
                         .stride   = stride,
                         .columns  = 1},
                        padding);
    w.pad_left = w.pad_right = 0;
    return w;
  }();
  template <class X>
  static constexpr bool fits = [] {
    if constexpr (!std::is_same_v<typename X::type, float> || X::rank != 2) return false;
    else return padding.same || (padding.pixels < Size && X::dims[0] + 2 * padding.pixels >= Size);
  }();

  static constexpr void check_size() { static_assert(is_sized, "chorale: a pool needs a window of at least 1"); }
  template <class X> static constexpr void check() {
    static_assert((known_option<Options> && ...),
                  "chorale: a pool takes a window size, then Valid, Same or Pad<n>, and Stride<n>");
    static_assert(fits<X>,
                  "chorale: a pool over steps takes sequences of numbers (B, T, C), with T at least its window");
  }
  template <int T, int C> requires fits<Of<float, T, C>> static constexpr auto output(Of<float, T, C>) {
    return Of<float, window<Of<float, T, C>>.out_height(), C>{};
  }
  template <int T, int C> static constexpr std::size_t kept(Of<float, T, C>) {
    return P == Pool::max ? static_cast<std::size_t>(window<Of<float, T, C>>.out_height()) * C : 0;
  }

  static void forward(auto& at) {
    each(at, [&](std::size_t n, std::size_t width, std::size_t x, std::size_t y) {
      if constexpr (P == Pool::max) largest(n, width, &at.x()[x], &at.y()[y], &at.kept[y]);
      else mean(n, width, &at.x()[x], &at.y()[y]);
    });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each(at, [&](std::size_t n, std::size_t width, std::size_t x, std::size_t y) {
      if constexpr (P == Pool::max) largest_back(width, &at.dy()[y], &at.kept[y], &at.dx()[x]);
      else mean_back(n, width, &at.dy()[y], &at.dx()[x]);
    });
  }

 private:
  /// Calls f(steps, channels, first number in x, first in y) for each window, without its padding.
  template <class M, int T, int C, class Out, class F>
  static void each(Place<M, List<Of<float, T, C>>, List<Out>>& at, F&& f) {
    constexpr auto w = window<Of<float, T, C>>;
    for (std::size_t r = 0; r < at.rows; ++r)
      for (int o = 0; o < w.out_height(); ++o) {
        auto const from = std::max(0, o * stride - w.pad_before);
        auto const end  = std::min(T, o * stride - w.pad_before + Size);
        f(static_cast<std::size_t>(end - from), std::size_t{C}, (r * T + static_cast<std::size_t>(from)) * C,
          (r * static_cast<std::size_t>(w.out_height()) + static_cast<std::size_t>(o)) * C);
      }
  }
};

/// Base of the pools over all pixels of an image.
template <class L, Pool P> struct GlobalPool : Layer<L> {
  static constexpr bool keeps_x = false;

  template <class X> static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank == 3;

  template <class X> static constexpr void check() {
    static_assert(fits<X>, "chorale: this pool takes images (B, H, W, C)");
  }
  template <int... D> requires fits<Of<float, D...>> static constexpr auto output(Of<float, D...> x) {
    return Of<float, x.back>{};
  }
  static constexpr std::size_t kept(auto x) { return P == Pool::max ? static_cast<std::size_t>(x.back) : 0; }

  static void forward(auto& at) {
    each(at, [&](std::size_t n, std::size_t width, std::size_t x, std::size_t y) {
      if constexpr (P == Pool::max) largest(n, width, &at.x()[x], &at.y()[y], &at.kept[y]);
      else mean(n, width, &at.x()[x], &at.y()[y]);
    });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each(at, [&](std::size_t n, std::size_t width, std::size_t x, std::size_t y) {
      if constexpr (P == Pool::max) largest_back(width, &at.dy()[y], &at.kept[y], &at.dx()[x]);
      else mean_back(n, width, &at.dy()[y], &at.dx()[x]);
    });
  }

 private:
  template <class M, class In, class Out, class F> static void each(Place<M, List<In>, List<Out>>& at, F&& f) {
    for (std::size_t r = 0; r < at.rows; ++r) f(In::vectors, std::size_t{In::back}, r * In::size, r * In::back);
  }
};

}  // namespace detail

/// The largest value of each window of steps, per channel. Of equal ones the first has the gradient.
///
/// x         (B, T, C)
/// y         (B, T', C); Pad<n>: T' = (T + 2 n - Size) / stride + 1; Same: T' = ceil(T / stride)
/// options   Valid, Same or Pad<n>, Stride<n>; default Valid, Stride<Size>
/// source    tf.keras.layers.MaxPooling1D
template <int Size, class... Options>
struct MaxPool1D : detail::Pool1D<MaxPool1D<Size, Options...>, Pool::max, Size, Options...> {
  static constexpr std::string_view name = "max_pooling1d";
};

/// The mean of each window of steps, per channel; padding does not count.
///
/// x, y      as for MaxPool1D, with its options
/// source    tf.keras.layers.AveragePooling1D
template <int Size, class... Options>
struct AveragePool1D : detail::Pool1D<AveragePool1D<Size, Options...>, Pool::average, Size, Options...> {
  static constexpr std::string_view name = "average_pooling1d";
};

/// The mean over all pixels, per channel: (B, H, W, C) gives (B, C).
///
/// source    tf.keras.layers.GlobalAveragePooling2D
struct GlobalAveragePool2D : detail::GlobalPool<GlobalAveragePool2D, Pool::average> {
  static constexpr std::string_view name = "global_average_pooling2d";
};
/// The largest value over all pixels, per channel: (B, H, W, C) gives (B, C).
///
/// source    tf.keras.layers.GlobalMaxPooling2D
struct GlobalMaxPool2D : detail::GlobalPool<GlobalMaxPool2D, Pool::max> {
  static constexpr std::string_view name = "global_max_pooling2d";
};

}  // namespace chorale::nn
