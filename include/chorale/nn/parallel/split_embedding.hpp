// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/layers/embedding.hpp>
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

namespace detail {

/// A rank's rows of a table that is split over the ranks along A.
template <class A, int Rows, int Width, class... Options> struct RankTable {
  static constexpr int parts        = parts_of<Options...>(Rows, A::size);
  static constexpr bool divides     = Width > 0 && parts_fit(Rows, parts, A::size);
  static constexpr int here         = parts / A::size;  // parts of this rank
  static constexpr std::size_t rows = static_cast<std::size_t>(Rows / A::size), width = static_cast<std::size_t>(Width);

  static constexpr auto variables() { return std::array{split_over<A>(table("embeddings", Rows / A::size, Width), 0)}; }
  static constexpr void check() {
    static_assert((parts_option<Options> && ...), "chorale: SplitEmbedding takes an axis, rows, a width, and Parts<N>");
    static_assert(divides,
                  "chorale: the rows of a SplitEmbedding are a multiple of its parts, which are as many as the "
                  "ranks of its axis, or 2, 4, 8 .. times as many. Round the rows up: no id takes those behind "
                  "the last; or write nn::Parts<N>");
  }
};

/// y = x Wᵀ, with the table W of a SplitEmbedding: this rank's part of the logits.
template <class A, int Rows, int Width, class... Options>
struct SplitLogits : Layer<SplitLogits<A, Rows, Width, Options...>>, TableSize<Rows, Width> {
  using axis                             = A;
  using Own                              = RankTable<A, Rows, Width, Options...>;
  static constexpr std::string_view name = "embedding";
  static constexpr bool keeps_nothing    = true;

  template <class X>
  static constexpr bool fits =
      std::is_same_v<typename X::type, float> && !X::is_ragged && X::rank > 0 && X::back == Width;
  template <class X> static constexpr void check() {
    static_assert(fits<X>, "chorale: logits(x) of a SplitEmbedding takes vectors (B, .., width) as wide as its own");
  }
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == invariant ? std::optional{sharded<-1>} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    if (!x.columns.empty()) return graph::Mistake::part_of_vectors;
    return x.positions == A::name ? graph::Mistake::part_of_positions : graph::Mistake::none;
  }
  static constexpr graph::Held gives(graph::Held x) { return {.columns = A::name, .positions = x.positions}; }

  template <class X> requires(fits<X> && Own::divides) static constexpr auto output(X) {
    return WithBack<X, Rows / A::size>{};
  }
  static constexpr auto variables(auto) { return Own::variables(); }
  static constexpr std::size_t products(auto x) { return x.size * Own::rows; }
  static constexpr std::size_t kept(auto x) { return scratch_of_sums(x.size, Own::parts, A::size); }

  static void forward(auto& at) {
    auto const m = at.x().size() / w;
    for (std::size_t p = 0; p < Own::here; ++p)
      cpu::matmul(m, of_part, w, {at.x().data(), w}, {at.v[0].data() + p * of_part * w, w, true},
                  {at.y().data() + p * of_part, n});
  }
  static void backward(auto& at) {
    auto const m         = at.x().size() / w;
    auto const* const dy = at.dy().data();
    for (std::size_t p = 0; p < Own::here; ++p)
      cpu::matmul(of_part, w, m, {dy + p * of_part, n, true}, {at.x().data(), w},
                  {at.dv[0].data() + p * of_part * w, w, 1, 1});
    if (at.dx().empty()) return;
    add_parts(0, Own::here, m * w, at.dx().data(), at.kept.data(), [&](std::size_t p, float* to) {
      cpu::matmul(m, w, of_part, {dy + p * of_part, n}, {at.v[0].data() + p * of_part * w, w}, {to, w});
    });
    along::all_reduce(group_along<A>(at.axes), at.dx(), at.kept.first(along::scratch_for(m * w, A::size)));
  }

 private:
  static constexpr std::size_t w = Own::width, n = Own::rows, of_part = n / std::max<std::size_t>(Own::here, 1);
};

}  // namespace detail

/// nn::Embedding whose rows are split over the ranks along A. The gradient of its table is dense.
///
/// x         (B, ..) ids of int or of bytes, each in [0, Rows), the same on all ranks
/// table     (Rows, Width), uniform between -0.05 and 0.05: this rank's part of the rows
/// y         (B, .., Width), the same on all ranks
/// options   Parts<N>
/// order     the gradient by what logits(x) takes is added up over N parts of the rows along one tree: the same bits for
///           1 to N ranks
/// cost      forward reduces y over the ranks; backward of logits(x) reduces dx
/// throws    BadArgument when an id is in no row of the table, before anything was computed from it
/// source    Shoeybi et al., "Megatron-LM", 2019
template <class A, int Rows, int Width, class... Options>
struct SplitEmbedding : Layer<SplitEmbedding<A, Rows, Width, Options...>>, detail::TableSize<Rows, Width> {
  using Layer<SplitEmbedding>::Layer;
  using axis                             = A;
  using part                             = detail::RankTable<A, Rows, Width, Options...>;
  using whole                            = detail::Table<Rows, Width, DenseGradient>;
  static constexpr std::string_view name = "embedding";
  static constexpr bool keeps_nothing    = true;

  template <class X> static constexpr void check() {
    part::check();
    whole::template check<X>();
  }
  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == invariant ? std::optional{x} : std::nullopt;
  }
  static constexpr graph::Mistake refuses(graph::Held x) {
    return x.positions == A::name ? graph::Mistake::part_of_positions : graph::Mistake::none;
  }
  static constexpr graph::Held gives(graph::Held x) { return x; }

  template <class T, int... D> requires(!std::is_same_v<T, float> && !Of<T, D...>::is_ragged && part::divides)
  static constexpr auto output(Of<T, D...>) {
    return Of<float, D..., Width>{};
  }
  static constexpr auto variables(auto) { return part::variables(); }
  static constexpr std::size_t kept(auto x) { return along::scratch_for(x.size * part::width, A::size); }

  /// The products of x with each row of the table: this rank's part of the logits, which loss::SplitSparseCrossEntropy<A>
  /// takes.
  ///
  /// x         (B, .., Width)
  /// returns   (B, .., Rows / ranks)
  template <class D, class O> constexpr auto logits(Tensor<D, O> x) const {
    return graph::call<D, detail::SplitLogits<A, Rows, Width, Options...>>(this->id(), this->name_, x);
  }

  static void forward(auto& at) {
    whole::expect_known(at);
    auto const group = group_along<A>(at.axes);
    each_vector(
        at, group,
        [&](std::size_t i, float* row) {
          auto* const y = at.y().data() + i * part::width;
          for (std::size_t c = 0; c < part::width; ++c) y[c] = row == nullptr ? 0.0F : row[c] + 0.0F;  // as sums: no -0
        },
        at.v[0].data());
    along::all_reduce(group, at.y(), at.kept.first(along::scratch_for(at.y().size(), A::size)));
  }
  static void backward(auto& at) {
    each_vector(
        at, group_along<A>(at.axes),
        [&](std::size_t i, float* sum) {
          auto const* const d = at.dy().data() + i * part::width;
          for (std::size_t c = 0; c < part::width && sum != nullptr; ++c) sum[c] += d[c];
        },
        at.dv[0].data());
  }

 private:
  /// Calls f(i, row) for each id: its row in a table of this rank's rows, null if another rank has it.
  template <class F> static void each_vector(auto const& at, AxisGroup const& group, F const& f, float* table) {
    auto const first = static_cast<std::size_t>(group.rank) * part::rows;
    for (std::size_t i = 0; i < at.x().size(); ++i) {
      auto const row = static_cast<std::size_t>(at.x()[i]) - first;  // huge below the first
      f(i, row < part::rows ? table + row * part::width : nullptr);
    }
  }
};

}  // namespace chorale::nn
