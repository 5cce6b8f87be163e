// SPDX-License-Identifier: Apache-2.0
//
// Layers that move elements in operations: other shapes, other orders, parts, and other sizes of images.
#pragma once

#include <chorale/nn/layers/reshape.hpp>
#include <chorale/nn/layers/resize.hpp>
#include <chorale/nn/lowering/call.hpp>

#include <cstddef>

namespace chorale::nn::stablehlo {

// (B, ..) to (B, To...).
template <int... To> struct Lowering<Reshape<To...>> {
  static Value write(Call& at) { return reshape(at.x(), {at.rows(), To...}); }
};
// Behind the rows, which stay first.
template <int... Axes> struct Lowering<Permute<Axes...>> {
  static Value write(Call& at) { return transpose(at.x(), {0, Axes + 1 ...}); }
};
// An axis is counted from the last one if it is negative.
template <int Begin, int End, int Axis> struct Lowering<Slice<Begin, End, Axis>> {
  static Value write(Call& at) {
    auto const rank = static_cast<int>(at.x().rank());
    return slice_of(at.x(), static_cast<std::size_t>(Axis < 0 ? rank + Axis : Axis + 1), Begin, End);
  }
};

// Pixels repeated along dimensions of their own, which then are one with height and width.
template <int Rows, int Columns> struct Lowering<UpSampling2D<Rows, Columns>> {
  static Value write(Call& at) {
    auto const h = at.x().dim(1), w = at.x().dim(2), c = at.x().dim(3);
    auto const y = broadcast(at.x(), {at.rows(), h, Rows, w, Columns, c}, {0, 1, 3, 5});
    return reshape(y, {at.rows(), h * Rows, w * Columns, c});
  }
};
// Zeros around the image.
template <int Top, int Bottom, int Left, int Right> struct Lowering<ZeroPadding2D<Top, Bottom, Left, Right>> {
  static Value write(Call& at) { return pad(at.x(), 0, {0, Top, Left, 0}, {0, Bottom, Right, 0}); }
};
// The part within.
template <int Top, int Bottom, int Left, int Right> struct Lowering<Cropping2D<Top, Bottom, Left, Right>> {
  static Value write(Call& at) {
    auto const& in = at.x().dims();
    return slice(at.x(), {0, Top, Left, 0}, {in[0], in[1] - Bottom, in[2] - Right, in[3]});
  }
};

}  // namespace chorale::nn::stablehlo
