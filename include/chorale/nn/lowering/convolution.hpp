// SPDX-License-Identifier: Apache-2.0
//
// Convolutions in operations.
#pragma once

#include <chorale/nn/layers/conv1d.hpp>
#include <chorale/nn/layers/conv2d.hpp>
#include <chorale/nn/layers/conv2d_transpose.hpp>
#include <chorale/nn/layers/depthwise_conv2d.hpp>
#include <chorale/nn/lowering/call.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/tensor/kernels.hpp>

namespace chorale::nn::stablehlo {

namespace detail {

/// A window over images x (B, H, W, C), with all other members from `like`.
inline Window window_over(Value x, Window like, nn::detail::Padding padding) {
  like.height   = static_cast<int>(x.dim(1));
  like.width    = static_cast<int>(x.dim(2));
  like.channels = static_cast<int>(x.dim(3));
  return nn::detail::padded(like, padding);
}
/// How a convolution reads such windows.
inline Convolved read_by(Window const& w) {
  return {.stride   = {w.stride, w.stride},
          .low      = {w.pad_before, w.pad_left},
          .high     = {w.pad_after, w.pad_right},
          .dilation = {w.dilation, w.dilation},
          .groups   = w.groups};
}
/// y + bias, if the layer has one.
template <class L> Value with_bias(Call& at, Value y) {
  if constexpr (L::biased) return y + along_last(at.variables[1], y);
  else return y;
}

}  // namespace detail

// One operation has all of its options.
template <int Filters, int Kernel, class... Options> struct Lowering<Conv2D<Filters, Kernel, Options...>> {
  using L = Conv2D<Filters, Kernel, Options...>;

  static Value write(Call& at) {
    auto const w = detail::window_over(
        at.x(),
        {.kernel = Kernel, .stride = L::stride, .columns = L::columns, .dilation = L::dilation, .groups = L::groups},
        L::padding);
    return detail::with_bias<L>(at, convolution(at.x(), at.variables[0], detail::read_by(w)));
  }
};

// Over an image of T rows and one column.
template <int Filters, int Kernel, class... Options> struct Lowering<Conv1D<Filters, Kernel, Options...>> {
  using L = Conv1D<Filters, Kernel, Options...>;

  static Value write(Call& at) {
    auto const x      = reshape(at.x(), {at.rows(), at.x().dim(1), 1, at.x().dim(2)});
    auto const kernel = reshape(at.variables[0], {Kernel, 1, at.variables[0].dim(1), Filters});
    auto w            = detail::window_over(
        x, {.kernel = Kernel, .stride = L::stride, .columns = 1, .dilation = L::dilation, .groups = L::groups},
        L::padding);
    w.pad_left = w.pad_right = 0;
    if (L::causal) w.pad_before = (Kernel - 1) * L::dilation, w.pad_after = 0;
    auto const y = convolution(x, kernel, detail::read_by(w));
    return detail::with_bias<L>(at, reshape(y, {at.rows(), y.dim(1), Filters}));
  }
};

// Each channel is a group.
template <int Kernel, class... Options> struct Lowering<DepthwiseConv2D<Kernel, Options...>> {
  using L = DepthwiseConv2D<Kernel, Options...>;

  static Value write(Call& at) {
    auto const channels = at.x().dim(3);
    auto const w        = detail::window_over(at.x(),
                                              {.kernel   = Kernel,
                                               .stride   = L::stride,
                                               .columns  = L::columns,
                                               .dilation = L::dilation,
                                               .groups   = static_cast<int>(channels)},
                                              L::padding);
    auto const kernel   = reshape(at.variables[0], {Kernel, L::columns, 1, channels * L::multiplier});
    return detail::with_bias<L>(at, convolution(at.x(), kernel, detail::read_by(w)));
  }
};

// The gradient, by its images, of the convolution that the layer transposes.
template <int Filters, int Kernel, class... Options> struct Lowering<Conv2DTranspose<Filters, Kernel, Options...>> {
  using L = Conv2DTranspose<Filters, Kernel, Options...>;

  static Value write(Call& at) {
    auto const out = [](auto in) {
      return static_cast<int>(L::padding.same ? in * L::stride : (in - 1) * L::stride + Kernel);
    };
    auto const w = nn::detail::padded({.height   = out(at.x().dim(1)),
                                       .width    = out(at.x().dim(2)),
                                       .channels = Filters,
                                       .kernel   = Kernel,
                                       .stride   = L::stride},
                                      L::padding);
    auto how = Convolved{.low = {Kernel - 1 - w.pad_before, Kernel - 1 - w.pad_left}, .spread = {L::stride, L::stride}};
    how.high = {w.height - (at.x().dim(1) - 1) * L::stride - 1 - how.low[0] + Kernel - 1,
                w.width - (at.x().dim(2) - 1) * L::stride - 1 - how.low[1] + Kernel - 1};
    auto const kernel = reverse(transpose(at.variables[0], {0, 1, 3, 2}), {0, 1});
    return detail::with_bias<L>(at, convolution(at.x(), kernel, how));
  }
};

}  // namespace chorale::nn::stablehlo
