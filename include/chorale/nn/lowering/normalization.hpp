// SPDX-License-Identifier: Apache-2.0
//
// Normalizations in operations.
#pragma once

#include <chorale/nn/layers/batch_norm.hpp>
#include <chorale/nn/layers/group_norm.hpp>
#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/layers/rms_norm.hpp>
#include <chorale/nn/layers/unit_norm.hpp>
#include <chorale/nn/lowering/call.hpp>
#include <chorale/tensor/kernels.hpp>

namespace chorale::nn::stablehlo {

namespace detail {

/// BatchNorm and SyncBatchNorm. Mean and variance leave out rows that fill up the last places. The variance is
/// the mean of (x - mean)², as float has too few digits for the difference of two sums. The kernel adds these up in
/// double.
///
/// cost    over_batch: two sums over all replicas, of C + 1 and C numbers, and as many in backward
template <class L, Normalize Over> struct BatchNormAsText {
  static Value write(Call& at) {
    if (!at.training) return normalized(at, at.variables[2], at.variables[3]);
    auto const x        = at.x();
    auto const channels = x.dims().back();
    auto const is_real  = along_first(compare(at.real, "GT", 0), x);
    auto const rows     = sum(at.real);
    auto const pixels   = static_cast<double>(count(x.dims()) / at.rows() / channels);
    auto sums           = added(select(is_real, x, 0.0));
    auto numbers        = reshape(rows * pixels, {1});
    if (Over == Normalize::over_batch) {
      auto const all = all_reduce(concatenate({sums, numbers}, 0));
      sums = slice_of(all, 0, 0, channels), numbers = slice_of(all, 0, channels, channels + 1);
    }
    auto const n        = reshape(maximum(numbers, 1), {});  // without rows: zeros, and not 0 / 0
    auto const of_all   = [&](Value total) { return total / broadcast(n, total.dims(), {}); };
    auto const mean     = of_all(sums);
    auto const distance = select(is_real, x - along_last(mean, x), 0.0);
    auto const squares  = added(distance * distance);
    auto const variance = of_all(Over == Normalize::over_batch ? all_reduce(squares) : squares);
    auto const here     = broadcast(rows, {channels}, {});
    at.moved            = {{2, mean * here}, {3, variance * here}};
    return normalized(at, mean, variance);
  }

 private:
  /// The sum of each channel.
  static Value added(Value x) {
    auto along = all_dimensions(x);
    along.pop_back();
    return sum(x, along);
  }
  static Value normalized(Call& at, Value mean, Value variance) {
    auto const x     = at.x();
    auto const scale = at.variables[0] * rsqrt(variance + static_cast<double>(L::epsilon()));
    return (x - along_last(mean, x)) * along_last(scale, x) + along_last(at.variables[1], x);
  }
};

/// LayerNorm and LayerNormWith: over each vector of the last dimension.
template <class L> struct LayerNormAsText {
  static Value write(Call& at) {
    auto const x        = at.x();
    auto const channels = static_cast<double>(x.dims().back());
    auto const distance = x - along_first(sum_last(x) / channels, x);
    auto const variance = sum_last(distance * distance) / channels;
    auto const scale    = rsqrt(variance + static_cast<double>(L::epsilon));
    return along_last(at.variables[0], x) * (distance * along_first(scale, x)) + along_last(at.variables[1], x);
  }
};

}  // namespace detail

template <class... Options>
struct Lowering<BatchNorm<Options...>> : detail::BatchNormAsText<BatchNorm<Options...>, Normalize::over_share> {};
// Over all replicas.
template <class... Options>
struct Lowering<SyncBatchNorm<Options...>> : detail::BatchNormAsText<SyncBatchNorm<Options...>, Normalize::over_batch> {
};

// With its own epsilon.
template <> struct Lowering<LayerNorm> : detail::LayerNormAsText<LayerNorm> {};
template <class... Options>
struct Lowering<LayerNormWith<Options...>> : detail::LayerNormAsText<LayerNormWith<Options...>> {};

// Divided by the root of the mean square.
template <class... Options> struct Lowering<RMSNorm<Options...>> {
  static Value write(Call& at) {
    auto const x     = at.x();
    auto const mean  = sum_last(x * x) / static_cast<double>(x.dims().back());
    auto const scale = rsqrt(mean + static_cast<double>(nn::detail::epsilon_or<Options...>(1e-6F)));
    return along_last(at.variables[0], x) * (x * along_first(scale, x));
  }
};

// Divided by the length, if it is one that can be divided by.
template <> struct Lowering<UnitNorm> {
  static Value write(Call& at) {
    auto const x        = at.x();
    auto const square   = sum_last(x * x);
    auto const is_short = compare(sqrt(square), "LT", static_cast<double>(1e-12F));
    auto const scale    = select(is_short, 0.0, rsqrt(select(is_short, 1.0, square)));  // no gradient of 1 / 0
    return x * along_first(scale, x);
  }
};

// Over (B, positions, groups, channels of a group).
template <int Groups, class... Options> struct Lowering<GroupNorm<Groups, Options...>> {
  static Value write(Call& at) {
    auto const channels = at.x().dims().back(), width = channels / Groups;
    auto const all      = count(at.x().dims()) / at.rows() / channels;  // positions of a row
    auto const numbers  = static_cast<double>(all * width);
    auto const x        = reshape(at.x(), {at.rows(), all, Groups, width});
    auto const repeated = [&](Value of_group) { return broadcast(of_group, x.dims(), {0, 2}); };
    auto const distance = x - repeated(sum(x, {1, 3}) / numbers);
    auto const variance = sum(distance * distance, {1, 3}) / numbers;
    auto const scale    = rsqrt(variance + static_cast<double>(nn::detail::epsilon_or<Options...>(1e-3F)));
    auto const y        = reshape(distance * repeated(scale), at.x().dims());
    return along_last(at.variables[0], y) * y + along_last(at.variables[1], y);
  }
};

}  // namespace chorale::nn::stablehlo
