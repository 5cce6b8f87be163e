// SPDX-License-Identifier: Apache-2.0
//
// Pools in operations. Of equal numbers of a window the first has the gradient, as in the kernels.
#pragma once

#include <chorale/nn/layers/global_pool.hpp>
#include <chorale/nn/layers/pool1d.hpp>
#include <chorale/nn/layers/pool2d.hpp>
#include <chorale/nn/lowering/call.hpp>
#include <chorale/nn/lowering/convolution.hpp>
#include <chorale/nn/networks/layer_list.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cmath>
#include <string_view>

namespace chorale::nn::stablehlo {

namespace detail {

/// The largest number, or the mean, of each window over images (B, H, W, C), excluding padding.
inline Value pooled(Value x, Window const& w, Pool kind) {
  auto const over = [&](Value of, double filled, std::string_view word) {
    auto const low = Dims{0, w.pad_before, w.pad_left, 0}, high = Dims{0, w.pad_after, w.pad_right, 0};
    auto const is_padded = low != Dims(4, 0) || high != Dims(4, 0);
    return windows(is_padded ? pad(of, filled, low, high) : of, word, {1, w.kernel, w.kernel_width(), 1},
                   {1, w.stride, w.stride, 1});
  };
  if (kind == Pool::max) return over(x, -HUGE_VAL, "maximum");
  auto const y      = over(x, 0, "add");
  auto const pixels = over(x.program->constant(1, {1, w.height, w.width, 1}, x.element()), 0, "add");
  return y / broadcast(reshape(pixels, {y.dim(1), y.dim(2)}), y.dims(), {1, 2});
}

/// Pools over images.
template <class L, int Size> struct Pool2DAsText {
  static Value write(Call& at) {
    return pooled(at.x(), window_over(at.x(), {.kernel = Size, .stride = L::stride}, L::padding), L::kind);
  }
};
/// Pools over the steps of sequences (B, T, C): over images of T rows and one column.
template <class L, int Size, Pool Kind> struct Pool1DAsText {
  static Value write(Call& at) {
    auto const x = reshape(at.x(), {at.rows(), at.x().dim(1), 1, at.x().dim(2)});
    auto w       = window_over(x, {.kernel = Size, .stride = L::stride, .columns = 1}, L::padding);
    w.pad_left = w.pad_right = 0;
    auto const y             = pooled(x, w, Kind);
    return reshape(y, {at.rows(), y.dim(1), y.dim(3)});
  }
};
/// Pools over all positions of (B, .., C).
template <Pool Kind> struct GlobalPoolAsText {
  static Value write(Call& at) {
    auto const channels  = at.x().dims().back();
    auto const positions = count(at.x().dims()) / at.rows() / channels;
    auto const x         = reshape(at.x(), {at.rows(), positions, channels});
    if (Kind == Pool::average) return sum(x, {1}) / static_cast<double>(positions);
    return reshape(windows(x, "maximum", {1, positions, 1}, {1, 1, 1}), {at.rows(), channels});
  }
};

}  // namespace detail

// With padding that is less than each number.
template <int Size, class... Options>
struct Lowering<MaxPool2D<Size, Options...>> : detail::Pool2DAsText<MaxPool2D<Size, Options...>, Size> {};
template <int Size, class... Options>
struct Lowering<AveragePool2D<Size, Options...>> : detail::Pool2DAsText<AveragePool2D<Size, Options...>, Size> {};
template <int Size, class... Options>
struct Lowering<MaxPool1D<Size, Options...>> : detail::Pool1DAsText<MaxPool1D<Size, Options...>, Size, Pool::max> {};
// The mean, excluding padding.
template <int Size, class... Options>
struct Lowering<AveragePool1D<Size, Options...>>
    : detail::Pool1DAsText<AveragePool1D<Size, Options...>, Size, Pool::average> {};

template <> struct Lowering<GlobalMaxPool2D> : detail::GlobalPoolAsText<Pool::max> {};
template <> struct Lowering<GlobalAveragePool2D> : detail::GlobalPoolAsText<Pool::average> {};
template <> struct Lowering<GlobalMaxPool1D> : detail::GlobalPoolAsText<Pool::max> {};
template <> struct Lowering<GlobalAveragePool1D> : detail::GlobalPoolAsText<Pool::average> {};

// What Sequential fuses.
template <class Conv, class Pool> struct Lowering<nn::detail::ConvPool<Conv, Pool>> {
  static Value write(Call& at) {
    at.in[0] = Lowering<Conv>::write(at);
    return Lowering<Pool>::write(at);
  }
};

}  // namespace chorale::nn::stablehlo
