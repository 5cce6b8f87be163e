// SPDX-License-Identifier: Apache-2.0
//
// Several tables in one layer, each whole on one rank.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
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

/// Rows of each table of an nn::ShardedTables: TableRows<100'000, 20'000, 1'000>.
template <int... Rows> struct TableRows {
  static_assert(sizeof...(Rows) > 0 && ((Rows > 0) && ...),
                "chorale: TableRows names at least one table, and each has at "
                "least 1 row");
  static constexpr std::array<int, sizeof...(Rows)> of{Rows...};
};

namespace detail {

/// Which rank has which of several tables, whole: the largest first, each to the rank that has the fewest rows so far.
template <class Tables, int ranks> struct DealtTables {
  static constexpr std::size_t count = Tables::of.size();

  struct Dealt {
    std::array<Rank, count> owner{};
    std::array<int, count> first{}, in_whole{};               // row 0 of a table: in its part, in the whole
    std::array<int, static_cast<std::size_t>(ranks)> rows{};  // of each rank
    int most = 0, whole = 0;                                  // rows of the fullest rank, and of all tables
  };
  static constexpr Dealt dealt = [] {
    auto made  = Dealt{};
    auto order = std::array<std::size_t, count>{};
    auto rows  = std::array<int, static_cast<std::size_t>(ranks)>{};
    for (std::size_t t = 0; t < count; ++t) {
      order[t]         = t;
      made.in_whole[t] = std::exchange(made.whole, made.whole + Tables::of[t]);
    }
    std::ranges::sort(
        order, [](auto a, auto b) { return Tables::of[a] != Tables::of[b] ? Tables::of[a] > Tables::of[b] : a < b; });
    for (auto const t : order) {
      auto const least = std::ranges::min_element(rows);
      made.owner[t]    = static_cast<Rank>(least - rows.begin());
      *least += Tables::of[t];
    }
    made.most = *std::ranges::max_element(rows);
    rows      = {};
    for (std::size_t t = 0; t < count; ++t) {
      auto& next    = rows[static_cast<std::size_t>(made.owner[t])];
      made.first[t] = std::exchange(next, next + Tables::of[t]);
    }
    made.rows = rows;
    return made;
  }();
  /// The index of row i of a part among the rows of all tables; -1 if it is padding.
  static constexpr int id(int part, int i) {
    for (std::size_t t = 0; t < count; ++t)
      if (dealt.owner[t] == part && i >= dealt.first[t] && i < dealt.first[t] + Tables::of[t])
        return dealt.in_whole[t] + i - dealt.first[t];
    return -1;
  }
  /// The tables that a rank has: "table 1", "tables 0, 2".
  static std::string name(Rank rank) {
    auto text = std::string{};
    for (std::size_t t = 0; t < count; ++t)
      if (dealt.owner[t] == rank) text.append(text.empty() ? "" : ", ") += std::to_string(t);
    if (text.empty()) return "no table";
    return (text.find(',') == text.npos ? "table " : "tables ") + text;
  }
};

}  // namespace detail

/// Several nn::EmbeddingBag of one width in one layer, each whole on one rank along an axis of a mesh. Larger tables
/// are placed first, each on the rank with the fewest bytes so far.
///
///   auto const [user, item, word] = tables(users, items, words);             nn::ShardedTables<A, 16, nn::TableRows<..>>
///
/// x         for each table (B, n) ids; n may be ragged, and differ
/// tables    one variable, the rows of all tables one after another: (sum of Rows, Width). Each rank has the rows of
///           its tables
/// y         for each table (B, Width); of a row without ids, zeros
/// cost      of ranks with different rows, forward: the ids of tables that others have, 4 bytes each, and a vector for
///           each bag back. Backward: a vector for each bag. Of ranks with the same rows: the vectors in forward alone.
///           And 4 bytes for each pair of ranks
/// order     the bits of nn::EmbeddingBag on one device, outputs and gradients
/// throws    BadArgument when an id is in no row of its table, before anything was sent; Disagreement when another rank
///           asks for a row that is not in the tables of this one
template <class A, int Width, class Tables, Bag As = Bag::mean, class... Options>
struct ShardedTables : Layer<ShardedTables<A, Width, Tables, As, Options...>> {
  using Layer<ShardedTables>::Layer;
  using axis                             = A;
  using state                            = detail::TableExchange;
  using cut                              = detail::DealtTables<Tables, A::size>;
  static constexpr std::string_view name = "tables";
  static constexpr bool keeps_x = true, reads_lengths = true;
  static constexpr bool other_rows = true;
  static constexpr bool gives_rows = ((Options::gives_rows) && ... && true);

  template <class X> static constexpr bool fits = !std::is_same_v<typename X::type, float> && X::rank == 1;

  template <class... X> static constexpr void check() {
    static_assert(sizeof...(X) == cut::count,
                  "chorale: ShardedTables takes a field of ids for each table. Name as many "
                  "tables in TableRows as it is called with");
    static_assert((fits<X> && ...),
                  "chorale: ShardedTables takes (B, n) ids, fields of int or of bytes, for each table");
  }
  template <class... X> requires(sizeof...(X) == cut::count && (fits<X> && ...)) static constexpr auto output(X...) {
    if constexpr (sizeof...(X) == 1) return Of<float, Width>{};
    else return Several<std::conditional_t<true, Of<float, Width>, X>...>{};
  }
  static constexpr auto variables(auto...) {
    auto spec = table("embeddings", cut::dealt.most, Width);
    if (A::size > 1)
      spec.split = {.dim = 0, .parts = A::size, .along = A::name, .whole = cut::dealt.whole, .index_of = &cut::id};
    return std::array{spec};
  }

  static void forward(auto& at) {
    auto& exchange = *at.state;
    each_table(at, [&]<std::size_t T, class O>() { detail::expect_known_bags<T, O>(at, Tables::of[T]); });
    auto const group = group_along<A>(at.axes);
    exchange.begin(group, false, cut::dealt.rows[static_cast<std::size_t>(group.rank)], &cut::name);
    each_table(at, [&]<std::size_t T, class O>() {
      detail::each_bag<T, O>(at, [&](std::size_t, auto const& ids) {
        for (int const id : ids)
          exchange.ask(cut::dealt.owner[T], static_cast<std::uint32_t>(cut::dealt.first[T] + id));
        exchange.end_bag();
      });
    });
    exchange.answer(at.v[0].data(), Width, As == Bag::mean ? detail::Answers::means : detail::Answers::sums);
    each_table(at, [&]<std::size_t T, class O>() {
      detail::each_bag<T, O>(at, [&](std::size_t r, auto const& ids) {
        auto* const y = &std::get<T>(at.out)[r * Width];
        if (ids.empty()) std::fill_n(y, Width, 0.0F);
        else std::copy_n(exchange.next(cut::dealt.owner[T]), Width, y);
      });
    });
  }
  static void backward(auto& at) {
    auto& exchange = *at.state;
    auto d         = std::array<float, Width>{};
    exchange.begin_gradients();
    each_table(at, [&]<std::size_t T, class O>() {
      detail::each_bag<T, O>(at, [&](std::size_t r, auto const& ids) {
        if (ids.empty()) return;
        for (std::size_t c = 0; c < Width; ++c) d[c] = detail::factor_of(As, ids.size()) * at.d_out[T][r * Width + c];
        exchange.give(cut::dealt.owner[T], d.data());
      });
    });
    exchange.add_up(at.rows_of[0], at.dv[0].data());
  }

 private:
  /// Calls f.operator()<T, O>() for each table T, whose ids are O.
  template <class... In, class Out>
  static void each_table(Place<ShardedTables, detail::List<In...>, Out> const&, auto&& f) {
    [&]<std::size_t... T>(std::index_sequence<T...>) {
      (f.template operator()<T, In>(), ...);
    }(std::index_sequence_for<In...>{});
  }
};

}  // namespace chorale::nn
