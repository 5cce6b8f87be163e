// SPDX-License-Identifier: Apache-2.0
//
// The outputs of a network with distribution types: whole on each rank.
#pragma once

#include <chorale/nn/parallel/distribution/conversions.hpp>
#include <chorale/nn/parallel/distribution/spread.hpp>
#include <chorale/nn/trace/trace.hpp>

#include <tuple>

namespace chorale::nn {

namespace detail {

template <bool is_whole> constexpr void check_outputs() {
  static_assert(is_whole,
                "chorale: an output of this network is not whole on each rank, but a part of a sum over an "
                "axis (P), a shard (S) or a value of each rank (V): put nn::all_reduce<Axis>(x) or "
                "nn::all_gather<Axis>(x) before nn::outputs");
}

/// True if a value may be an output: the same on all ranks, or parts of vectors, which a loss over that axis takes. The
/// trace refuses parts of positions, and other losses.
template <class O, class... On> constexpr bool is_whole(List<On...>) {
  return ((On::is == replicated ||
           (On::is.kind == Distribution::Kind::sharded && (On::is.dim == 0 || On::is.dim == O::rank - 1))) &&
          ...);
}

/// A value that is R along some axes as one that is I along them.
template <class D, class O> constexpr auto counted_once(Tensor<D, O> x, List<>) { return x; }
template <class D, class O, class First, class... On> constexpr auto counted_once(Tensor<D, O> x, List<First, On...>) {
  if constexpr (First::is == replicated) return counted_once(count_once<typename First::axis>(x), List<On...>{});
  else return counted_once(x, List<On...>{});
}

}  // namespace detail

namespace graph {

// Declared in trace.hpp: outputs, some of them not I along all axes. The gradient of a loss is complete on each
// rank.
template <class D, class... F, class... O> struct SpreadOutputs<D, List<F...>, O...> {
  static constexpr auto run(Tensor<D, O>... y) {
    constexpr bool whole = (nn::detail::is_whole<nn::detail::OwnOf<O>>(nn::detail::axes_of<O>) && ...);
    nn::detail::check_outputs<whole>();
    if constexpr (whole) {
      return Outputs<D, List<F...>, nn::detail::OwnOf<O>...>{
          {nn::detail::counted_once(y, nn::detail::axes_of<O>).value...}};
    } else {
      auto& trace   = *std::get<0>(std::tuple{y.trace...});
      trace.mistake = Mistake::refused;
      return Tensor<D, Refused>{&trace, 0};
    }
  }
};

}  // namespace graph
}  // namespace chorale::nn
