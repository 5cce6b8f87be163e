// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/parallel/split.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>
#include <chorale/tensor/cpu/matmul.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace chorale::nn {

/// y = x W + b with its columns split over the ranks along A: nn::Dense whose output no rank has as a whole. Put
/// activations or nn::ColumnHeads after it, and then nn::RowDense.
///
/// x         (B, .., In), the same on all ranks; with SplitSequence this rank's positions, (B, T / ranks, In)
/// W, b      (In, Width), (Width): this rank's part of the columns, of each block
/// y         (B, .., Width / ranks); with SplitSequence all positions
/// options   Parts<N>, Blocks<N>, SplitSequence, an initializer but Orthogonal
/// order     the gradient by x is added up over N parts of the columns along one tree: the same bits for 1 to N ranks
/// cost      N products in place of one, and log2(N) gradients by x as scratch. Backward reduces dx over the ranks; with
///           SplitSequence all positions of x are kept for backward
/// source    Shoeybi et al., "Megatron-LM", 2019
template <class A, int Width, class... Options> struct ColumnDense : Layer<ColumnDense<A, Width, Options...>> {
  using Layer<ColumnDense>::Layer;
  using axis                             = A;
  static constexpr std::string_view name = "dense";

  static constexpr bool by_sequence   = (detail::sequence_option<Options> || ...);
  static constexpr bool keeps_nothing = !by_sequence;
  static constexpr int blocks         = detail::blocks_or<Options...>(1);
  static constexpr int parts          = detail::parts_of<Options...>(Width / blocks, A::size);
  static constexpr bool divides       = Width % blocks == 0 && detail::parts_fit(Width / blocks, parts, A::size);

  template <class X>
  static constexpr bool fits =
      std::is_same_v<typename X::type, float> && !X::is_ragged && (by_sequence ? X::rank == 2 : X::rank > 0);

  template <class X> static constexpr void check() {
    static_assert((detail::split_option<Options> && ...),
                  "chorale: ColumnDense takes an axis, a width, and of options Parts, Blocks, SplitSequence, and an "
                  "initializer");
    static_assert(divides,
                  "chorale: the width of a ColumnDense, in each of its blocks, is a multiple of its parts, "
                  "which are as many as the ranks of its axis, or 2, 4, 8 .. times as many. Change the width, or "
                  "write nn::Parts<N>");
    static_assert(detail::init_or<Options...>(Init::glorot_uniform) != Init::orthogonal,
                  "chorale: a split kernel cannot begin orthogonal, which is known of whole matrices alone. Use "
                  "GlorotUniform");
    static_assert(fits<X>,
                  "chorale: ColumnDense takes vectors of numbers (B, .., In), and with SplitSequence sequences "
                  "(B, T, In)");
  }
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == (by_sequence ? sharded<0> : invariant) ? std::optional{sharded<-1>} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    if (!x.columns.empty()) return graph::Mistake::part_of_vectors;
    if (by_sequence && x.positions != A::name) return graph::Mistake::no_part_of_positions;
    if (!by_sequence && x.positions == A::name) return graph::Mistake::part_of_positions;
    return graph::Mistake::none;
  }
  static constexpr graph::Held gives(graph::Held x) {
    return {.columns = A::name, .positions = by_sequence ? std::string_view{} : x.positions};
  }

  template <class X> requires(fits<X> && divides) static constexpr auto output(X) {
    if constexpr (by_sequence) return WithBack<typename detail::OtherPositions<X, A::size, 1>::type, units>{};
    else return WithBack<X, units>{};
  }
  template <class X> static constexpr auto variables(X) {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    return std::array{detail::split_over<A>({"kernel", {X::back, units}, 2, init, X::back, Width}, 1, blocks),
                      detail::split_over<A>({"bias", {units}, 1, Init::zeros, X::back, Width}, 0, blocks)};
  }
  template <class X> static constexpr std::size_t products(X x) { return x.size * (by_sequence ? A::size : 1) * units; }

  /// With SplitSequence x of all positions, the gradient by it, and the same by ranks; then scratch.
  template <class X> static constexpr std::size_t kept(X x) {
    constexpr auto n = X::size * static_cast<std::size_t>(by_sequence ? A::size : 1);
    static_cast<void>(x);
    return (by_sequence ? 2 * n : 0) + detail::scratch_of_sums(n, parts, A::size);
  }

  static void forward(auto& at) {
    constexpr auto in = inputs<decltype(at)>;
    auto const* x     = at.x().data();
    if constexpr (by_sequence) {
      auto const all = sequences(at);
      all.gather(group_along<A>(at.axes), x, at.kept.data(), at.kept.data() + all.all());
      x = at.kept.data();
    }
    auto const m = at.y().size() / units;
    each_part([&](std::size_t column) {
      cpu::matmul(m, of_part, in, {x, in}, {at.v[0].data() + column, units}, {at.y().data() + column, units});
    });
    detail::add_bias(m, at.v[1], at.y().data());
  }
  static void backward(auto& at) {
    constexpr auto in    = inputs<decltype(at)>;
    auto const* const dy = at.dy().data();
    auto const* const x  = by_sequence ? at.kept.data() : at.x().data();
    auto const m         = at.dy().size() / units;
    each_part([&](std::size_t column) {
      cpu::matmul(in, of_part, m, {x, in, true}, {dy + column, units}, {at.dv[0].data() + column, units, 1, 1});
    });
    detail::add_rows(m, dy, at.dv[1]);
    if (at.dx().empty()) return;
    auto const group    = group_along<A>(at.axes);
    auto* const dx      = by_sequence ? at.kept.data() + m * in : at.dx().data();
    auto* const scratch = at.kept.data() + (by_sequence ? 2 * m * in : 0);
    detail::add_parts(0, here, m * in, dx, scratch, [&](std::size_t part, float* to) {
      for (std::size_t b = 0; b < blocks; ++b) {
        auto const column = b * (units / blocks) + part * of_part;
        cpu::matmul(m, in, of_part, {dy + column, units}, {at.v[0].data() + column, units, true},
                    {to, in, 1, b == 0 ? 0.0F : 1.0F});
      }
    });
    if constexpr (by_sequence) {
      auto const all = sequences(at);
      if constexpr (A::size > 1) {
        all.sort(dx, at.kept.data());  // over x, which nobody reads any more
        along::reduce_scatter(group, Span<float const>{at.kept.data(), all.all()}, at.dx(),
                              Span<float>{scratch, along::scratch_for(all.all(), A::size)});
      } else {
        std::copy_n(dx, all.all(), at.dx().data());
      }
    } else {
      along::all_reduce(group, at.dx(), Span<float>{scratch, along::scratch_for(m * in, A::size)});
    }
  }

 private:
  static constexpr int here            = parts / A::size;  // parts of this rank
  static constexpr std::size_t units   = Width / A::size;
  static constexpr std::size_t of_part = static_cast<std::size_t>(Width / blocks / std::max(parts, 1));

  template <class At> static constexpr auto inputs = static_cast<std::size_t>(std::remove_cvref_t<At>::X::back);
  template <class At> static auto sequences(At const& at) { return detail::SequenceParts<A>{at.rows, At::X::size}; }

  /// Calls f(first column) for each part of each block of this rank.
  template <class F> static void each_part(F const& f) {
    for (std::size_t b = 0; b < blocks; ++b)
      for (std::size_t p = 0; p < here; ++p) f(b * (units / blocks) + p * of_part);
  }
};

/// y = x W + b with the rows of W, and the vectors of x as nn::ColumnDense gives them, split over the ranks along A.
/// The sum over all ranks is whole on each.
///
/// x         (B, .., In / ranks)
/// W, b      (In, Width): this rank's part of the rows; (Width), added once
/// y         (B, .., Width), the same on all ranks; with SplitSequence this rank's positions, (B, T / ranks, Width)
/// options   Parts<N>, SplitSequence, an initializer but Orthogonal
/// order     y is added up over N parts of the rows along one tree: the same bits for 1 to N ranks
/// cost      N products in place of one, and log2(N) outputs as scratch. Forward reduces y over the ranks
/// source    Shoeybi et al., "Megatron-LM", 2019
template <class A, int Width, class... Options> struct RowDense : Layer<RowDense<A, Width, Options...>> {
  using Layer<RowDense>::Layer;
  using axis                             = A;
  static constexpr std::string_view name = "dense";

  static constexpr bool by_sequence = (detail::sequence_option<Options> || ...), keeps_nothing = true;
  template <class X> static constexpr int parts    = detail::parts_of<Options...>(X::back * A::size, A::size);
  template <class X> static constexpr bool divides = detail::parts_fit(X::back * A::size, parts<X>, A::size);

  template <class X>
  static constexpr bool fits =
      std::is_same_v<typename X::type, float> && !X::is_ragged && (by_sequence ? X::rank == 2 : X::rank > 0);
  template <class X>
  static constexpr bool cuts = [] {  // true if positions divide
    if constexpr (by_sequence && fits<X>) return X::dims[0] % A::size == 0;
    else return true;
  }();

  template <class X> static constexpr void check() {
    static_assert(((detail::split_option<Options> && !detail::blocks_option<Options>) && ...),
                  "chorale: RowDense takes an axis, a width, and of options Parts, SplitSequence, and an initializer");
    static_assert(Width > 0, "chorale: RowDense<axis, width> needs at least one unit");
    static_assert(detail::init_or<Options...>(Init::glorot_uniform) != Init::orthogonal,
                  "chorale: a split kernel cannot begin orthogonal, which is known of whole matrices alone. Use "
                  "GlorotUniform");
    static_assert(fits<X>,
                  "chorale: RowDense takes vectors of numbers (B, .., In), and with SplitSequence sequences "
                  "(B, T, In)");
    if constexpr (fits<X>)
      static_assert(divides<X>,
                    "chorale: the vectors that a RowDense takes have, on all ranks, a multiple of its parts "
                    "of numbers, and its parts are as many as the ranks of its axis, or 2, 4, 8 .. times as "
                    "many. Change the width before it, or write nn::Parts<N>");
    static_assert(cuts<X>,
                  "chorale: the positions of a sequence do not divide by the ranks of the axis over which they "
                  "are split. Pad the sequences, or use another number of ranks");
  }
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x.kind == Distribution::Kind::sharded ? std::optional{by_sequence ? sharded<0> : invariant} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    if (x.columns != A::name) return graph::Mistake::no_part_of_vectors;
    return by_sequence && !x.positions.empty() ? graph::Mistake::part_of_positions : graph::Mistake::none;
  }
  static constexpr graph::Held gives(graph::Held x) { return {.positions = by_sequence ? A::name : x.positions}; }
  static constexpr bool sums_gradients = by_sequence;  // of the bias: it reads all positions

  template <class X> requires(Width > 0 && fits<X> && divides<X> && cuts<X>) static constexpr auto output(X) {
    if constexpr (by_sequence) return WithBack<typename detail::OtherPositions<X, 1, A::size>::type, Width>{};
    else return WithBack<X, Width>{};
  }
  template <class X> static constexpr auto variables(X) {
    constexpr auto init = detail::init_or<Options...>(Init::glorot_uniform);
    constexpr auto in   = X::back * A::size;
    return std::array{detail::split_over<A>({"kernel", {X::back, Width}, 2, init, in, Width}, 0),
                      VariableSpec{"bias", {Width}, 1, Init::zeros, in, Width}};
  }
  template <class X> static constexpr std::size_t products(X x) { return x.size * Width; }

  /// With SplitSequence y, or its gradient, of all positions, and the same by ranks; then scratch.
  template <class X> static constexpr std::size_t kept(X) {
    constexpr auto n = X::vectors * static_cast<std::size_t>(Width);
    return (by_sequence ? 2 * n : 0) + detail::scratch_of_sums(n, parts<X>, A::size);
  }

  template <int... D, class Out> static void forward(Place<RowDense, detail::List<Of<float, D...>>, Out>& at) {
    using P             = Part<Of<float, D...>>;
    auto const m        = at.x().size() / P::in;
    auto const group    = group_along<A>(at.axes);
    auto* const y       = by_sequence ? at.kept.data() : at.y().data();
    auto* const scratch = at.kept.data() + (by_sequence ? 2 * m * width : 0);
    detail::add_parts(0, P::here, m * width, y, scratch, [&](std::size_t p, float* to) {
      cpu::matmul(m, width, P::size, {at.x().data() + p * P::size, P::in},
                  {at.v[0].data() + p * P::size * width, width}, {to, width});
    });
    if constexpr (by_sequence) sequences(at).scatter_sum(group, y, at.y().data(), at.kept.data() + m * width);
    else along::all_reduce(group, at.y(), Span<float>{scratch, along::scratch_for(m * width, A::size)});
    detail::add_bias(at.y().size() / width, at.v[1], at.y().data());
  }
  template <int... D, class Out> static void backward(Place<RowDense, detail::List<Of<float, D...>>, Out>& at) {
    using P        = Part<Of<float, D...>>;
    auto const m   = at.x().size() / P::in;
    auto const* dy = at.dy().data();
    if constexpr (by_sequence) {
      sequences(at).gather(group_along<A>(at.axes), dy, at.kept.data(), at.kept.data() + m * width);
      dy = at.kept.data();
    }
    for (std::size_t p = 0; p < P::here; ++p) {
      cpu::matmul(P::size, width, m, {at.x().data() + p * P::size, P::in, true}, {dy, width},
                  {at.dv[0].data() + p * P::size * width, width, 1, 1});
      if (!at.dx().empty())
        cpu::matmul(m, P::size, width, {dy, width}, {at.v[0].data() + p * P::size * width, width, true},
                    {at.dx().data() + p * P::size, P::in});
    }
    detail::add_rows(m, dy, at.dv[1]);
  }

 private:
  static constexpr std::size_t width = static_cast<std::size_t>(Width);

  /// The parts of this rank: their number, the numbers of a vector in each, and in all.
  template <class X> struct Part {
    static constexpr int here         = parts<X> / A::size;
    static constexpr std::size_t in   = static_cast<std::size_t>(X::back);
    static constexpr std::size_t size = in / static_cast<std::size_t>(here);
  };
  static auto sequences(auto const& at) { return detail::SequenceParts<A>{at.rows, at.y().size() / at.rows}; }
};

}  // namespace chorale::nn
