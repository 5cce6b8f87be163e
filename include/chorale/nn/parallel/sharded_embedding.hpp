// SPDX-License-Identifier: Apache-2.0
//
// Layers of one table over one exchange, and how the table is cut.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/parallel/table_exchange.hpp>
#include <chorale/nn/trace/host_layer.hpp>
#include <chorale/nn/trace/layer.hpp>
#include <chorale/nn/trace/tensor.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace chorale::nn {

/// How a table is cut over ranks: each has some rows, one after another, as placement::layout() cuts them. If they do
/// not divide, the first ranks have one more.
struct ByRow {};
/// Row i is on rank i mod P, so that ids which often come, and are often the first, are on all ranks.
struct ByRowInTurn {};
/// Each rank has some columns of every row.
struct ByColumn {};

namespace detail {

template <class Option>
inline constexpr bool is_cut =
    std::is_same_v<Option, ByRow> || std::is_same_v<Option, ByRowInTurn> || std::is_same_v<Option, ByColumn>;

/// Which part of a table of so many rows a rank has where each has some of the rows.
///
/// parts     at least 1
template <int Rows, int parts, bool in_turn> struct CutRows {
  static constexpr int most  = (Rows + parts - 1) / parts;           // rows of a part, with padding
  static constexpr int least = Rows / parts, longer = Rows % parts;  // so many parts have a row more

  static constexpr int begin(int part) { return least * part + std::min(part, longer); }
  static constexpr int rows(int part) { return least + (part < longer ? 1 : 0); }
  static constexpr Rank owner(int id) {
    if constexpr (in_turn) return id % parts;
    else return id < longer * most ? id / most : longer + (id - longer * most) / std::max(least, 1);
  }
  static constexpr int row(int id) { return in_turn ? id / parts : id - begin(owner(id)); }
  /// The id of row i of a part; -1 if that is padding.
  static constexpr int id(int part, int i) {
    auto const of = in_turn ? i * parts + part : begin(part) + i;
    return of < (in_turn ? Rows : begin(part + 1)) ? of : -1;
  }
};

/// A table that is split over the ranks of axis A, and what its layers do with it.
template <class A, int Rows, int Width, class... Options> struct TableInShards {
  static constexpr bool by_column = (std::is_same_v<Options, ByColumn> || ...);
  static constexpr bool by_rows   = ([] {
    if constexpr (is_cut<Options>) return true;
    else return Options::gives_rows;
  }() && ... && true);
  static constexpr int parts = by_column && Width % A::size != 0 ? 1 : A::size;  // check() has refused it otherwise
  static constexpr std::size_t width = static_cast<std::size_t>(by_column ? Width / parts : Width);  // of a part
  using cut                          = CutRows<Rows, A::size, (std::is_same_v<Options, ByRowInTurn> || ...)>;

  static constexpr auto variables() {
    auto spec = table("embeddings", by_column ? Rows : cut::most, static_cast<int>(width));
    if (A::size == 1) return std::array{spec};
    if (by_column) spec.split = {.dim = 1, .parts = A::size, .along = A::name};
    else spec.split = {.dim = 0, .parts = A::size, .along = A::name, .whole = Rows, .index_of = &cut::id};
    return std::array{spec};
  }

  template <class X> static constexpr void check() {
    static_assert((0 + ... + (is_cut<Options> ? 1 : 0)) <= 1,
                  "chorale: a ShardedEmbedding is cut in one way: nn::ByRow, nn::ByRowInTurn or nn::ByColumn");
    static_assert(
        !by_column || Width % A::size == 0,
        "chorale: a ShardedEmbedding<A, rows, width, nn::ByColumn> deals out its columns evenly: the width must "
        "be a multiple of the size of axis A. Use nn::ByRow, which cuts any table");
    static_assert(by_rows || A::name != data_axis,
                  "chorale: along the axis \"data\" the gradient of a table is rows, which its rank has whole: leave "
                  "nn::DenseGradient out");
    Table<Rows, Width>::template check<X>();
  }

  /// Begins a step.
  ///
  /// L     the layer, whose name errors use for its table
  template <class L> static void begin(TableExchange& exchange, AxisGroup const& group) {
    exchange.begin(group, by_column, by_column ? Rows : cut::rows(group.rank),
                   [](Rank) { return "the table of " + std::string{L::name}; });
  }
  /// Asks for an id of a bag.
  static void ask(TableExchange& exchange, int id) {
    if constexpr (by_column) exchange.ask(0, static_cast<std::uint32_t>(id));
    else exchange.ask(cut::owner(id), static_cast<std::uint32_t>(cut::row(id)));
  }
  static void ask_alone(TableExchange& exchange, int id) {
    if constexpr (by_column) exchange.ask_alone(0, static_cast<std::uint32_t>(id));
    else exchange.ask_alone(cut::owner(id), static_cast<std::uint32_t>(cut::row(id)));
  }
};

}  // namespace detail

/// nn::Embedding whose table is split over the ranks along an axis of a mesh: each id is replaced by a row of the
/// table, wherever that is.
///
/// A         Axis<name, ranks>. Its ranks have different rows of the batch, or the same ones
/// Options   nn::ByRow, if nothing is said, nn::ByRowInTurn or nn::ByColumn; nn::DenseGradient
/// x         (B, ..) ids of int or of bytes, each in [0, Rows)
/// table     (Rows, Width), uniform between -0.05 and 0.05; each rank has a part
/// y         (B, .., Width)
/// cost      of ranks with different rows, forward: the ids that others own, 4 bytes each, and their vectors back;
///           ByColumn: all ids to all. Backward: a vector for each of these ids. Of ranks with the same rows: the
///           vectors in forward alone. And 4 bytes for each pair of ranks
/// order     the gradient of a row is added up in the order of the global batch: the bits of nn::Embedding on one
///           device
/// throws    BadArgument when an id is in no row of the table, before anything was sent; Disagreement when another rank
///           asks for a row that is not in the part of this one
/// source    Naumov et al., "Deep Learning Training in Facebook Data Centers", 2020; HugeCTR
template <class A, int Rows, int Width, class... Options>
struct ShardedEmbedding : Layer<ShardedEmbedding<A, Rows, Width, Options...>>, detail::TableSize<Rows, Width> {
  using Layer<ShardedEmbedding>::Layer;
  using axis                             = A;
  using state                            = detail::TableExchange;
  using split                            = detail::TableInShards<A, Rows, Width, Options...>;
  static constexpr std::string_view name = "embedding";
  static constexpr bool keeps_x = true, each_position = true;
  static constexpr bool other_rows = true;
  static constexpr bool gives_rows = split::by_rows;

  template <class X> static constexpr void check() { split::template check<X>(); }
  template <class T, int... D> requires(!std::is_same_v<T, float>) static constexpr auto output(Of<T, D...>) {
    return Of<float, D..., Width>{};
  }
  static constexpr auto variables(auto) { return split::variables(); }

  static void forward(auto& at) {
    detail::Table<Rows, Width>::expect_known(at);
    auto& exchange = *at.state;
    split::template begin<ShardedEmbedding>(exchange, group_along<A>(at.axes));
    for (int const id : at.x()) split::ask_alone(exchange, id);
    exchange.answer(at.v[0].data(), split::width, detail::Answers::each);
    auto* y = at.y().data();
    for (int const id : at.x())
      if constexpr (split::by_column)
        for (Rank q = 0; q < A::size; ++q) y = std::copy_n(exchange.next(q), split::width, y);
      else y = std::copy_n(exchange.next(split::cut::owner(id)), split::width, y);
  }
  static void backward(auto& at) {
    auto& exchange = *at.state;
    exchange.begin_gradients();
    auto const* d = at.dy().data();
    for (int const id : at.x())
      if constexpr (split::by_column)
        for (Rank q = 0; q < A::size; ++q, d += split::width) exchange.give(q, d);
      else exchange.give(split::cut::owner(id), d), d += split::width;
    exchange.add_up(at.rows_of[0], at.dv[0].data());
  }
};

namespace detail {

/// Calls f(row, ids) for each row of input I, a span of ids.
template <std::size_t I, class O> void each_bag(auto const& at, auto&& f) {
  auto const x = std::get<I>(at.in);
  if (auto const* const all = at.ragged[I]; all != nullptr)
    for (std::size_t r = 0; r < all->lengths.size(); ++r)
      f(r, x.subspan(all->starts[r], static_cast<std::size_t>(all->lengths[r])));
  else
    for (std::size_t r = 0; r < at.rows; ++r) f(r, x.subspan(r * O::size, O::size));
}

/// Checks that all ids of input I are rows of its table.
template <std::size_t I, class O> void expect_known_bags(auto const& at, int table_rows) {
  each_bag<I, O>(at, [&](std::size_t r, auto const& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (int const id = ids[i]; id < 0 || id >= table_rows)
        throw_unknown_id(id, table_rows, at.first + r, i, at.fields[I]);
  });
}

}  // namespace detail

/// nn::EmbeddingBag whose table is split over the ranks along an axis of a mesh: see ShardedEmbedding.
///
/// x         (B, n) ids, each in [0, Rows); an id may occur several times. n may be ragged
/// y         (B, Width); of a row without ids, zeros
/// cost      ByColumn, forward: all ids to all, and a vector of Width / P numbers for each bag back. ByRow: the ids
///           that others own, and a vector for each of them, as a sum of sums has other bits. Backward: a vector for
///           each bag, to each owner of one of its ids
/// order     the bits of nn::EmbeddingBag on one device, outputs and gradients
/// throws    BadArgument when an id is in no row of the table, before anything was sent; Disagreement when another rank
///           asks for a row that is not in the part of this one
template <class A, int Rows, int Width, Bag As = Bag::mean, class... Options>
struct ShardedEmbeddingBag : Layer<ShardedEmbeddingBag<A, Rows, Width, As, Options...>>,
                             detail::TableSize<Rows, Width> {
  using Layer<ShardedEmbeddingBag>::Layer;
  using axis                             = A;
  using state                            = detail::TableExchange;
  using split                            = detail::TableInShards<A, Rows, Width, Options...>;
  static constexpr std::string_view name = "embedding_bag";
  static constexpr bool keeps_x = true, reads_lengths = true;
  static constexpr bool other_rows = true;
  static constexpr bool gives_rows = split::by_rows;

  template <class X> static constexpr void check() {
    split::template check<X>();
    static_assert(X::rank == 1, "chorale: ShardedEmbeddingBag takes (B, n) ids; put nn::reshape<n>(...) before it");
  }
  template <class T, int N> requires(!std::is_same_v<T, float>) static constexpr auto output(Of<T, N>) {
    return Of<float, Width>{};
  }
  static constexpr auto variables(auto) { return split::variables(); }

  static void forward(auto& at) {
    using X = typename std::remove_cvref_t<decltype(at)>::X;
    detail::expect_known_bags<0, X>(at, Rows);
    auto& exchange = *at.state;
    split::template begin<ShardedEmbeddingBag>(exchange, group_along<A>(at.axes));
    detail::each_bag<0, X>(at, [&](std::size_t, auto const& ids) {
      for (int const id : ids) split::ask(exchange, id);
      exchange.end_bag();
    });
    exchange.answer(at.v[0].data(), split::width,
                    !split::by_column ? detail::Answers::each
                    : As == Bag::mean ? detail::Answers::means
                                      : detail::Answers::sums);
    detail::each_bag<0, X>(at, [&](std::size_t r, auto const& ids) {
      auto const y = at.y().subspan(r * Width, Width);
      std::fill(y.begin(), y.end(), 0.0F);
      if (ids.empty()) return;
      if constexpr (split::by_column) {
        for (Rank q = 0; q < A::size; ++q)
          std::copy_n(exchange.next(q), split::width, y.data() + static_cast<std::size_t>(q) * split::width);
      } else {
        for (int const id : ids) {
          auto const* const row = exchange.next(split::cut::owner(id));
          for (std::size_t c = 0; c < Width; ++c) y[c] += row[c];
        }
        for (auto& sum : y) sum *= detail::factor_of(As, ids.size());
      }
    });
  }
  static void backward(auto& at) {
    using X        = typename std::remove_cvref_t<decltype(at)>::X;
    auto& exchange = *at.state;
    auto d         = std::array<float, Width>{};
    exchange.begin_gradients();
    detail::each_bag<0, X>(at, [&](std::size_t r, auto const& ids) {
      if (ids.empty()) return;
      for (std::size_t c = 0; c < Width; ++c) d[c] = detail::factor_of(As, ids.size()) * at.dy()[r * Width + c];
      if constexpr (split::by_column) {
        for (Rank q = 0; q < A::size; ++q) exchange.give(q, d.data() + static_cast<std::size_t>(q) * split::width);
      } else {
        auto owns = std::array<bool, static_cast<std::size_t>(A::size)>{};
        for (int const id : ids)
          if (auto& asked = owns[static_cast<std::size_t>(split::cut::owner(id))]; !std::exchange(asked, true))
            exchange.give(split::cut::owner(id), d.data());
      }
    });
    exchange.add_up(at.rows_of[0], at.dv[0].data());
  }
};

}  // namespace chorale::nn
