// SPDX-License-Identifier: Apache-2.0
//
// The conversions of distribution types as layers of a network, each with the conversion that is its backward.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/parallel/distribution/call.hpp>
#include <chorale/nn/parallel/distribution/table.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale::nn {

namespace detail {

using distribution::Change;

/// Rows of numbers with one dimension cut into one part for each rank: `outer` pieces of `width` numbers.
struct Cut {
  std::size_t outer = 0, width = 0;
  int ranks = 1;

  std::size_t part() const { return width / static_cast<std::size_t>(ranks); }

  void take(Span<float const> whole, int rank, float* to) const {
    for (std::size_t i = 0; i < outer; ++i)
      std::copy_n(&whole[i * width + static_cast<std::size_t>(rank) * part()], part(), to + i * part());
  }
  void put(float const* from, int rank, Span<float> whole) const {
    for (std::size_t i = 0; i < outer; ++i)
      std::copy_n(from + i * part(), part(), &whole[i * width + static_cast<std::size_t>(rank) * part()]);
  }
};

/// The cut of dimension `dim` of values of type O that have `numbers` numbers in memory.
template <class O> Cut cut_of(int dim, std::size_t numbers, int ranks) {
  auto width = std::size_t{1};
  for (auto d = static_cast<std::size_t>(dim); d < O::dims.size(); ++d) width *= static_cast<std::size_t>(O::dims[d]);
  return {numbers / width, width, ranks};
}

/// Does what a conversion does, from x of type X to y of type Y.
///
/// scratch   numbers: twice the larger of both, and one for each rank
template <Change change, class A, Distribution from, Distribution to, class X, class Y>
void convert(AxisGroup const& group, Span<float const> x, Span<float> y, Span<float> scratch) {
  using enum Change;
  if (x.empty()) return;
  auto const ranks  = static_cast<std::size_t>(group.size);
  auto const gather = cut_of<Y>(from.dim, y.size(), group.size);
  auto const split  = cut_of<X>(to.dim, x.size(), group.size);
  if constexpr (change == all_gather) {
    auto const all = scratch.first(y.size());
    along::all_gather(group, x, all);
    for (std::size_t r = 0; r < ranks; ++r) gather.put(&all[r * x.size()], static_cast<int>(r), y);
  } else if constexpr (change == reduce_scatter) {
    for (std::size_t r = 0; r < ranks; ++r) split.take(x, static_cast<int>(r), &scratch[r * y.size()]);
    along::reduce_scatter(group, Span<float const>{scratch.first(x.size())}, y, scratch.subspan(x.size()));
  } else if constexpr (change == all_to_all) {
    auto const n   = x.size() / ranks;
    auto const out = scratch.first(x.size()), in = scratch.subspan(x.size(), x.size());
    auto sizes = std::array<std::size_t, std::size_t{A::size}>{};
    sizes.fill(n);
    for (std::size_t r = 0; r < ranks; ++r) split.take(x, static_cast<int>(r), &out[r * n]);
    along::all_to_all(group, Span<float const>{out}, sizes, in, sizes);
    for (std::size_t r = 0; r < ranks; ++r) gather.put(&in[r * n], static_cast<int>(r), y);
  } else if constexpr (change == scatter) {
    split.take(x, group.rank, y.data());
  } else if constexpr (change == pad) {
    std::fill(y.begin(), y.end(), 0.0F);
    gather.put(x.data(), group.rank, y);
  } else {
    if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
    if constexpr (change == on_one_rank) {
      if (group.rank != 0) std::fill(y.begin(), y.end(), 0.0F);
    }
    if constexpr (change == all_reduce) along::all_reduce(group, y, scratch);
  }
}

/// The rows of a value when its dimensions are multiplied and divided by N: of dimension Joined, and of Cut.
template <class O, int ranks, int joined, int cut> struct Resized;
template <int... D, int ranks, int joined, int cut> struct Resized<Of<float, D...>, ranks, joined, cut> {
  template <std::size_t... I> static auto make(std::index_sequence<I...>) {
    return Of<float, ((static_cast<int>(I) == joined ? D * ranks : D) / (static_cast<int>(I) == cut ? ranks : 1))...>{};
  }
  using type = decltype(make(std::make_index_sequence<sizeof...(D)>{}));
};

constexpr distribution::Like kind_of(Distribution of) {
  return distribution::like(of, 0, std::numeric_limits<int>::max());
}

/// A conversion along axis A as a layer.
template <Change change, class A, Distribution from, Distribution to>
struct Convert : Layer<Convert<change, A, from, to>> {
  using axis = A;

  static constexpr std::string_view name = distribution::text_of(change);
  static constexpr auto spreads_as       = SpreadsAs{distribution::Operation::linear, 0};
  static constexpr auto backward_change =
      distribution::conversion_of(distribution::conversions, change, kind_of(from), kind_of(to)).backward;
  static constexpr bool sharded_then = from.kind == Distribution::Kind::sharded;
  static constexpr bool sharded_now  = to.kind == Distribution::Kind::sharded;
  static constexpr bool joins        = sharded_then && change != Change::vary;
  static constexpr bool cuts         = sharded_now && change != Change::as_shards;
  static constexpr bool overwrites = !joins && !cuts, keeps_x = false;

  static std::string text() {
    return std::string{name} + "<" + std::string{A::name} + "," + std::to_string(A::size) + "," + text_of(from) + "," +
           text_of(to) + ">";
  }

  static constexpr std::optional<Distribution> spread(Distribution x) {
    return x == from ? std::optional{to} : std::nullopt;
  }
  template <int... D> static constexpr auto output(Of<float, D...>) {
    return typename Resized < Of<float, D...>, A::size, joins ? from.dim : -1, cuts ? to.dim : -1 > ::type{};
  }
  /// Scratch of forward and of backward.
  template <int... D> static constexpr std::size_t kept(Of<float, D...> x) {
    return sends(change) || sends(backward_change) ? 2 * std::max(x.size, output(x).size) + A::size : 0;
  }

  template <class L, class X, class Y> static void forward(Place<L, List<X>, List<Y>>& at) {
    convert<change, A, from, to, X, Y>(group_along<A>(at.axes), at.x(), at.y(), at.kept);
  }
  template <class L, class X, class Y> static void backward(Place<L, List<X>, List<Y>>& at) {
    if (!at.dx().empty())
      convert<backward_change, A, dual(to), dual(from), Y, X>(group_along<A>(at.axes), at.dy(), at.dx(), at.kept);
  }

 private:
  static constexpr bool sends(Change of) { return of <= Change::all_to_all; }
};

/// Refuses a conversion of what it does not take.
template <Change change, bool is_there> constexpr void check_conversion() {
  using enum Change;
  static_assert(is_there || change != all_reduce,
                "chorale: nn::all_reduce<Axis>(x) adds up parts of a sum (P) or, to nn::invariant, values of each rank "
                "(V), and what comes in along this axis is neither: what is the same on all ranks needs no sum, and "
                "for shards there is nn::all_gather. Is it another axis?");
  static_assert(is_there || change != all_gather,
                "chorale: nn::all_gather<Axis>(x) joins shards (S), and what comes in is not sharded along this axis. "
                "Is it another axis?");
  static_assert(is_there || change != reduce_scatter,
                "chorale: nn::reduce_scatter<Axis, dim>(x) adds up parts of a sum (P), and what comes in along this "
                "axis is no part. For a value that is the same on all ranks there is nn::scatter");
  static_assert(is_there || change != scatter,
                "chorale: nn::scatter<Axis, dim>(x) takes a value that is the same on all ranks of the axis (I or R), "
                "and what comes in is not. Of a part of a sum (P) nn::reduce_scatter makes shards");
  static_assert(
      is_there || change <= reduce_scatter || change == scatter,
      "chorale: this conversion does not take what comes in along this axis: replicate takes I, count_once R, "
      "on_one_rank I or R, vary I, R or S, as_parts and as_shards V, pad S, and all_to_all S of another "
      "dimension");
}

/// Refuses a dimension that cannot be cut into one part for each rank.
template <bool is_there, bool is_even, bool is_free> constexpr void check_cut() {
  static_assert(is_there,
                "chorale: a value is cut along a dimension of its rows, counted from 0, that all rows have "
                "in one size: this one has no such dimension");
  static_assert(!is_there || is_even,
                "chorale: a dimension is cut into equal shards, and its size is no multiple of "
                "the number of ranks of the axis");
  static_assert(!is_there || is_free,
                "chorale: this dimension is sharded over another axis. Shard another dimension, "
                "or put nn::all_gather over that axis before it");
}

/// What a value is along A after a conversion to such a kind.
template <class A, Change change, Distribution to, class D, class O> constexpr auto convert_along(Tensor<D, O> x) {
  if constexpr (std::is_same_v<O, Refused>) {
    return x;
  } else {
    using Own            = OwnOf<O>;
    constexpr auto from  = along_axis<A, O>;
    constexpr auto way   = distribution::conversion_of(distribution::conversions, change, kind_of(from), kind_of(to));
    constexpr bool known = way.to != distribution::Like::none && (change != Change::all_to_all || from.dim != to.dim);
    constexpr bool cuts  = to.kind == Distribution::Kind::sharded;
    constexpr auto dim   = static_cast<std::size_t>(to.dim < 0 ? 0 : to.dim);
    constexpr bool is_there = !cuts || (to.dim >= 0 && to.dim < Own::rank && (to.dim > 0 || !Own::is_ragged));
    constexpr bool is_even  = [] {
      if constexpr (cuts && is_there && change != Change::as_shards) return Own::dims[dim] % A::size == 0;
      else return true;
    }();
    constexpr bool is_free = !cuts || !shards_elsewhere<A>(axes_of<O>, to.dim);
    if constexpr (known && is_there && is_even && is_free) {
      return Convert<change, A, from, to>{}(x);
    } else {
      check_conversion<change, known>();
      if constexpr (known) check_cut<is_there, is_even, is_free>();
      x.trace->mistake = graph::Mistake::refused;
      return Tensor<D, Refused>{x.trace, 0};
    }
  }
}

}  // namespace detail

/// The sum of what ranks along axis A have: of a part of a sum (P) to I or R, of values of each rank (V) to I.
///
/// to    nn::invariant, or nn::replicated where each rank continues with other variables, whose gradients are parts
template <class A, Distribution to = invariant, class D, class O> constexpr auto all_reduce(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::all_reduce, to>(x);
}

/// The shards that the ranks along axis A have, joined: of S to I, or to R.
template <class A, Distribution to = invariant, class D, class O> constexpr auto all_gather(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::all_gather, to>(x);
}

/// The sum of what ranks along axis A have (P), scattered: each rank gets a shard of dimension dim.
template <class A, int dim, class D, class O> constexpr auto reduce_scatter(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::reduce_scatter, sharded<dim>>(x);
}

/// Shards of dimension dim, of a value that is sharded along another dimension.
template <class A, int dim, class D, class O> constexpr auto all_to_all(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::all_to_all, sharded<dim>>(x);
}

/// This rank's shard of dimension dim, of a value that all ranks along axis A have (I or R).
template <class A, int dim, class D, class O> constexpr auto scatter(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::scatter, sharded<dim>>(x);
}

/// A shard (S) with zeros in place of the other ranks' shards: a part of the whole (P).
template <class A, class D, class O> constexpr auto pad(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::pad, partial>(x);
}

/// x as it is (I), and in backward the sum of its gradients over the ranks along axis A: what ranks read that go on
/// with other variables each (R).
template <class A, class D, class O> constexpr auto replicate(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::replicate, replicated>(x);
}

/// x as it is (R). In backward its gradient, complete on each rank (I), counts on the first rank alone.
template <class A, class D, class O> constexpr auto count_once(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::count_once, invariant>(x);
}

/// x on the first rank along axis A, zeros on the others: of I or R a part of a sum (P), to be added to another part.
template <class A, class D, class O> constexpr auto on_one_rank(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::on_one_rank, partial>(x);
}

/// x (I, R or S) as a separate value on each rank (V).
template <class A, class D, class O> constexpr auto vary(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::vary, varying>(x);
}

/// Separate values of the ranks (V) as the parts of their sum (P).
template <class A, class D, class O> constexpr auto as_parts(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::as_parts, partial>(x);
}

/// Separate values of the ranks (V) as the shards of dimension dim of one value (S).
template <class A, int dim, class D, class O> constexpr auto as_shards(Tensor<D, O> x) {
  return detail::convert_along<A, detail::Change::as_shards, sharded<dim>>(x);
}

}  // namespace chorale::nn
