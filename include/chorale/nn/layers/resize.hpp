// SPDX-License-Identifier: Apache-2.0
//
// Layers that change the size of an image, and compute nothing: more pixels, a border, a part.
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

template <class X> inline constexpr bool is_image = std::is_same_v<typename X::type, float> && X::rank == 3;

}  // namespace detail

/// Each pixel Rows x Columns times, as the nearest pixel.
///
/// x, y      (B, H, W, C), (B, Rows H, Columns W, C)
/// source    tf.keras.layers.UpSampling2D, with its default interpolation="nearest"
template <int Rows = 2, int Columns = Rows> struct UpSampling2D : Layer<UpSampling2D<Rows, Columns>> {
  static constexpr std::string_view name = "up_sampling2d";
  static constexpr bool keeps_x          = false;

  template <class X> static constexpr bool fits = detail::is_image<X> && Rows > 0 && Columns > 0;

  template <class X> static constexpr void check() {
    static_assert(fits<X>, "chorale: UpSampling2D<rows, columns> takes images (B, H, W, C), and factors of at least 1");
  }
  template <int H, int W, int C> requires fits<Of<float, H, W, C>> static constexpr auto output(Of<float, H, W, C>) {
    return Of<float, Rows * H, Columns * W, C>{};
  }

  static void forward(auto& at) {
    each(at, [&](std::size_t from, std::size_t to, std::size_t c) { std::copy_n(&at.x()[from], c, &at.y()[to]); });
  }
  static void backward(auto& at) {
    if (at.dx().empty()) return;
    each(at, [&](std::size_t from, std::size_t to, std::size_t c) {
      for (std::size_t i = 0; i < c; ++i) at.dx()[from + i] += at.dy()[to + i];
    });
  }

 private:
  /// Calls f(first number in x, first in y, channels) for each pixel of y.
  template <class L, int H, int W, int C, class Out, class F>
  static void each(Place<L, detail::List<Of<float, H, W, C>>, Out>& at, F&& f) {
    constexpr std::size_t rows = Rows, columns = Columns, h = H, w = W, c = C;
    auto to = std::size_t{0};
    for (std::size_t r = 0; r < at.rows; ++r)
      for (std::size_t i = 0; i < rows * h; ++i)
        for (std::size_t j = 0; j < columns * w; ++j, to += c) f(((r * h + i / rows) * w + j / columns) * c, to, c);
  }
};

namespace detail {

/// Base of the layers whose input or output is a part of the other: an image within a larger one.
template <int Top, int Bottom, int Left, int Right> struct Border {
  /// Calls f(first number in the part, first in the whole, numbers) for each row of pixels of the part.
  template <class Part, class F> static void each(std::size_t rows, F&& f) {
    constexpr std::size_t h = Part::dims[0], w = Part::dims[1], c = Part::dims[2];
    constexpr std::size_t whole_w = w + Left + Right, whole_h = h + Top + Bottom;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < h; ++i) f((r * h + i) * w * c, ((r * whole_h + Top + i) * whole_w + Left) * c, w * c);
  }
};

}  // namespace detail

/// A border of zeros around an image. ZeroPadding2D<1> has one pixel on each side.
///
/// x, y      (B, H, W, C), (B, Top + H + Bottom, Left + W + Right, C)
/// source    tf.keras.layers.ZeroPadding2D
template <int Top = 1, int Bottom = Top, int Left = Top, int Right = Left>
struct ZeroPadding2D : Layer<ZeroPadding2D<Top, Bottom, Left, Right>> {
  static constexpr std::string_view name = "zero_padding2d";
  static constexpr bool keeps_x          = false;

  template <class X>
  static constexpr bool fits = detail::is_image<X> && Top >= 0 && Bottom >= 0 && Left >= 0 && Right >= 0;

  template <class X> static constexpr void check() {
    static_assert(fits<X>,
                  "chorale: ZeroPadding2D<top, bottom, left, right> takes images (B, H, W, C), and pads of at "
                  "least 0");
  }
  template <int H, int W, int C> requires fits<Of<float, H, W, C>> static constexpr auto output(Of<float, H, W, C>) {
    return Of<float, Top + H + Bottom, Left + W + Right, C>{};
  }

  template <class L, class In, class Out> static void forward(Place<L, detail::List<In>, Out>& at) {
    std::fill(at.y().begin(), at.y().end(), 0.0F);
    detail::Border<Top, Bottom, Left, Right>::template each<In>(
        at.rows, [&](std::size_t from, std::size_t to, std::size_t n) { std::copy_n(&at.x()[from], n, &at.y()[to]); });
  }
  template <class L, class In, class Out> static void backward(Place<L, detail::List<In>, Out>& at) {
    if (at.dx().empty()) return;
    detail::Border<Top, Bottom, Left, Right>::template each<In>(at.rows,
                                                                [&](std::size_t from, std::size_t to, std::size_t n) {
                                                                  for (std::size_t i = 0; i < n; ++i)
                                                                    at.dx()[from + i] += at.dy()[to + i];
                                                                });
  }
};

/// An image without its border. Cropping2D<1> removes one pixel on each side.
///
/// x, y      (B, H, W, C), (B, H - Top - Bottom, W - Left - Right, C)
/// source    tf.keras.layers.Cropping2D
template <int Top, int Bottom = Top, int Left = Top, int Right = Left>
struct Cropping2D : Layer<Cropping2D<Top, Bottom, Left, Right>> {
  static constexpr std::string_view name = "cropping2d";
  static constexpr bool keeps_x          = false;

  template <class X>
  static constexpr bool fits = [] {
    if constexpr (!detail::is_image<X>) return false;
    else
      return Top >= 0 && Bottom >= 0 && Left >= 0 && Right >= 0 && X::dims[0] > Top + Bottom &&
             X::dims[1] > Left + Right;
  }();

  template <class X> static constexpr void check() {
    static_assert(
        fits<X>,
        "chorale: Cropping2D<top, bottom, left, right> takes images (B, H, W, C) that are larger than what it "
        "removes");
  }
  template <int H, int W, int C> requires fits<Of<float, H, W, C>> static constexpr auto output(Of<float, H, W, C>) {
    return Of<float, H - Top - Bottom, W - Left - Right, C>{};
  }

  template <class L, class In, class Out> static void forward(Place<L, In, detail::List<Out>>& at) {
    detail::Border<Top, Bottom, Left, Right>::template each<Out>(
        at.rows, [&](std::size_t to, std::size_t from, std::size_t n) { std::copy_n(&at.x()[from], n, &at.y()[to]); });
  }
  template <class L, class In, class Out> static void backward(Place<L, In, detail::List<Out>>& at) {
    if (at.dx().empty()) return;
    detail::Border<Top, Bottom, Left, Right>::template each<Out>(at.rows,
                                                                 [&](std::size_t to, std::size_t from, std::size_t n) {
                                                                   for (std::size_t i = 0; i < n; ++i)
                                                                     at.dx()[from + i] += at.dy()[to + i];
                                                                 });
  }
};

}  // namespace chorale::nn
