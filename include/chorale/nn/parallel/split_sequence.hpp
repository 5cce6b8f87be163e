// SPDX-License-Identifier: Apache-2.0
//
// Sequences whose positions are split over the ranks along an axis.
#pragma once

#include <chorale/nn/layers/layer_norm.hpp>
#include <chorale/nn/parallel/split.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale::nn {

namespace detail {

/// This rank's part of the positions of x.
template <class A> struct ScatterSequence : Layer<ScatterSequence<A>> {
  using axis                             = A;
  static constexpr std::string_view name = "scatter_sequence";
  static constexpr bool keeps_x = false, keeps_nothing = true;

  template <class X>
  static constexpr bool fits = [] {
    if constexpr (X::is_ragged || X::rank == 0) return false;
    else return X::dims[0] % A::size == 0;
  }();
  template <class X> static constexpr void check() {
    static_assert(!X::is_ragged && X::rank > 0, "chorale: scatter_sequence takes sequences (B, T, ..) of one length");
    static_assert(X::is_ragged || X::rank == 0 || fits<X>,
                  "chorale: the positions of a sequence do not divide by the ranks of the axis over which they are "
                  "split. Pad the sequences, or use another number of ranks");
  }
  static constexpr auto spreads_as = SpreadsAs{distribution::Operation::linear, 0};
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == invariant ? std::optional{sharded<0>} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    return x.positions.empty() ? graph::Mistake::none : graph::Mistake::part_of_positions;
  }
  static constexpr graph::Held gives(graph::Held x) { return {.columns = x.columns, .positions = A::name}; }

  template <class X> requires fits<X> static constexpr auto output(X) {
    return typename OtherPositions<X, 1, A::size>::type{};
  }
  template <class X> static constexpr std::size_t kept(X) {
    return std::is_same_v<typename X::type, float> && A::size > 1 ? X::size : 0;
  }

  static void forward(auto& at) { parts(at).take(group_along<A>(at.axes), at.x().data(), at.y().data()); }
  static void backward(auto& at) {
    if constexpr (std::is_same_v<typename std::remove_cvref_t<decltype(at)>::X::type, float>)
      if (!at.dx().empty()) parts(at).gather(group_along<A>(at.axes), at.dy().data(), at.dx().data(), at.kept.data());
  }

 private:
  template <class At> static auto parts(At const& at) {
    return SequenceParts<A, typename At::X::type>{at.rows, At::X::size / static_cast<std::size_t>(A::size)};
  }
};

/// All positions of sequences that are split over ranks.
template <class A> struct GatherSequence : Layer<GatherSequence<A>> {
  using axis                             = A;
  static constexpr std::string_view name = "gather_sequence";
  static constexpr bool keeps_x = false, keeps_nothing = true;

  template <class X>
  static constexpr bool fits = std::is_same_v<typename X::type, float> && !X::is_ragged && (X::rank > 0);
  template <class X> static constexpr void check() {
    static_assert(fits<X>, "chorale: gather_sequence takes sequences of numbers (B, T, ..) of one length");
  }
  static constexpr auto spreads_as = SpreadsAs{distribution::Operation::linear, 0};
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == sharded<0> ? std::optional{invariant} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    return x.positions == A::name ? graph::Mistake::none : graph::Mistake::no_part_of_positions;
  }
  static constexpr graph::Held gives(graph::Held x) { return {.columns = x.columns}; }

  template <class X> requires fits<X> static constexpr auto output(X) {
    return typename OtherPositions<X, A::size, 1>::type{};
  }
  template <class X> static constexpr std::size_t kept(X) {
    return A::size > 1 ? X::size * static_cast<std::size_t>(A::size) : 0;
  }

  static void forward(auto& at) {
    parts(at).gather(group_along<A>(at.axes), at.x().data(), at.y().data(), at.kept.data());
  }
  static void backward(auto& at) {
    if (!at.dx().empty()) parts(at).take(group_along<A>(at.axes), at.dy().data(), at.dx().data());
  }

 private:
  template <class At> static auto parts(At const& at) { return SequenceParts<A>{at.rows, At::X::size}; }
};

}  // namespace detail

/// This rank's part of the positions of x, which is the same on all ranks along A: (B, T, ..) -> (B, T / ranks, ..), of
/// numbers or ids. Layers that compute each position by itself may follow; the gradients of their variables are added up
/// over the ranks.
///
/// cost    backward gathers the gradient of all positions
template <class A, class D, class O> constexpr auto scatter_sequence(Tensor<D, O> x) {
  return detail::ScatterSequence<A>{}(x);
}
/// All positions of x, which are split over the ranks along A: (B, T / ranks, ..) -> (B, T, ..), the same on all ranks.
template <class A, class D, class O> constexpr auto gather_sequence(Tensor<D, O> x) {
  return detail::GatherSequence<A>{}(x);
}

/// nn::LayerNorm of sequences whose positions are split over the ranks along A. The gradients of gamma and beta are
/// added up over N parts of the positions along one tree: the same bits for 1 to N ranks. nn::LayerNorm is as right
/// there, but has other bits for each number of ranks.
///
/// x, y      (B, T / ranks, C)
/// options   Parts<N>, Epsilon<millionths>
template <class A, class... Options> struct SplitLayerNorm : detail::LayerNormOf<SplitLayerNorm<A, Options...>> {
  using Base = detail::LayerNormOf<SplitLayerNorm>;
  using Base::Base;
  using axis                           = A;
  static constexpr bool sums_gradients = true;
  static constexpr bool each_position  = false;  // its parts are of one length
  static constexpr float epsilon       = detail::epsilon_or<Options...>(1e-5F);

  template <class X>
  static constexpr int positions = [] {
    if constexpr (X::rank == 0 || X::is_ragged) return 1;
    else return X::dims[0] * A::size;
  }();
  template <class X> static constexpr int parts = detail::parts_of<Options...>(positions<X>, A::size);

  template <class X>
  static constexpr bool fits = std::is_same_v<typename X::type, float> && X::rank == 2 && !X::is_ragged;
  template <class X> static constexpr void check() {
    static_assert(((detail::parts_option<Options> || detail::epsilon_option<Options>) && ...),
                  "chorale: SplitLayerNorm takes an axis, Parts<N> and Epsilon<millionths>");
    static_assert(fits<X>, "chorale: SplitLayerNorm takes sequences of numbers (B, T, C)");
    static_assert(!fits<X> || detail::parts_fit(positions<X>, parts<X>, A::size),
                  "chorale: the positions of a sequence are a multiple of the parts of a SplitLayerNorm, which are as "
                  "many as the ranks of its axis, or 2, 4, 8 .. times as many. Write nn::Parts<N>");
  }
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == sharded<0> ? std::optional{x} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    if (!x.columns.empty()) return graph::Mistake::part_of_vectors;
    return x.positions == A::name ? graph::Mistake::none : graph::Mistake::no_part_of_positions;
  }
  static constexpr graph::Held gives(graph::Held x) { return x; }

  template <class X> requires(fits<X> && detail::parts_fit(positions<X>, parts<X>, A::size))
  static constexpr auto output(X x) {
    return x;
  }
  /// Mean and scale of each vector; then sums of each part and scratch, allocated for each row and used once.
  template <class X> static constexpr std::size_t kept(X x) {
    return 2 * x.vectors + static_cast<std::size_t>(parts<X> / A::size) * 2 * X::back +
           along::scratch_for(2 * X::back, A::size);
  }

  template <int T, int C, class Out>
  static void backward(Place<SplitLayerNorm, detail::List<Of<float, T, C>>, Out>& at) {
    using X              = Of<float, T, C>;
    constexpr auto here  = parts<X> / A::size;
    constexpr auto steps = static_cast<std::size_t>(T), c = static_cast<std::size_t>(C);
    auto* const sums    = at.kept.data() + 2 * at.rows * steps;
    auto* const scratch = sums + here * 2 * c;
    std::fill(sums, scratch, 0.0F);
    Base::backward_into(at, [&](std::size_t vector) {
      auto* const of_part = sums + vector % steps / (steps / here) * 2 * c;
      return std::pair{of_part, of_part + c};
    });
    auto const plus = [](float a, float b) { return a + b; };
    along::fold_rows(sums, 2 * c, here, 2 * c, plus);
    along::all_reduce(group_along<A>(at.axes), Span<float>{sums, 2 * c},
                      Span<float>{scratch, along::scratch_for(2 * c, A::size)});
    for (std::size_t i = 0; i < c; ++i) at.dv[0][i] += sums[i];
    for (std::size_t i = 0; i < c; ++i) at.dv[1][i] += sums[c + i];
  }
};

}  // namespace chorale::nn
