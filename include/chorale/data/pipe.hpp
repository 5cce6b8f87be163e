// SPDX-License-Identifier: Apache-2.0
//
// In one piece: all stages, each in a few lines, with what they are told and what they refuse.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/elements.hpp>
#include <chorale/data/stage_options.hpp>

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

namespace detail {

template <class Row, class F> inline constexpr bool has_field = false;
template <class... G, class F>
inline constexpr bool has_field<Row<G...>, F> = chorale::detail::FieldList<G...>::template has<F>;
template <class Row, class F>
inline constexpr bool has_ragged_field = has_field<Row, F> && chorale::detail::is_ragged<F>;

/// True if rows have padded field From, whose positions ragged field To may have.
template <class Row, class From, class To> inline constexpr bool unpads = false;
template <class... G, IsField From, IsField To>
inline constexpr bool unpads<Row<G...>, From, To> = [] {
  if constexpr (!chorale::detail::FieldList<G...>::template has<From> ||
                !std::is_same_v<typename From::element_type, typename To::element_type> || From::is_ragged ||
                From::rank != To::rank || From::rank == 0) {
    return false;
  } else {
    return To::dims[0] == ragged && std::equal(From::dims.begin() + 1, From::dims.end(), To::dims.begin() + 1);
  }
}();

template <class F, class In, class Out> constexpr bool expect_callable();  // in stages/map.hpp

}  // namespace detail

/// The dataset in place of one that the compiler has refused with a sentence. What takes it says nothing more.
struct RefusedData {
  template <class...> RefusedData map(auto&&) const { return {}; }
  template <class...> RefusedData map(auto&&, Parallel) const { return {}; }
  template <class...> RefusedData unpad(auto&&...) const { return {}; }
  RefusedData filter(auto&&...) const { return {}; }
  RefusedData take(std::size_t) const { return {}; }
  RefusedData skip(std::size_t) const { return {}; }
  RefusedData shard(std::size_t, std::size_t) const { return {}; }
  RefusedData concatenate(auto&&) const { return {}; }
  template <class...> RefusedData window(Window) const { return {}; }
  RefusedData cache(auto&&...) const { return {}; }
  RefusedData shuffle(auto&&...) const { return {}; }
  RefusedData batch(auto&&...) const { return {}; }
  RefusedData padded_batch(auto&&...) const { return {}; }
  RefusedData padded_batch(GlobalBatch, Padding, Remainder = Remainder::keep) const { return {}; }
  RefusedData bucket_by_sequence_length(auto&&, Buckets) const { return {}; }
  RefusedData repeat(std::size_t) const { return {}; }
  RefusedData prefetch(std::size_t) const { return {}; }
  RefusedData prefetch(Ahead) const { return {}; }
};

/// The stages of an input pipeline, read from left to right: a dataset D gets them by deriving from Pipe<D>.
///
///   auto train = data::digits(20'000, 1).map(data::scale).cache().shuffle(10'000).batch(64).prefetch(2);
///
/// source  tf.data.Dataset: the same names, the same meaning
template <class D> class Pipe {
 public:
  /// Makes a row of each row: calls f(row, x, y) or f(row, x, y, place), which fills two vectors that become the new
  /// row. If f returns false, the row is left out.
  ///
  /// X, Y    the numbers of the rows that f makes: map<float, float>(f) for a regression
  /// x, y    keep their memory and content from row to row: resize them, then write every element
  template <class X = float, class Y = int, class F> requires(!IsField<X> && !IsField<Y>) auto map(F f) const {
    if constexpr (can_map<F, Sample<X, Y>>()) return Mapped<D, F, Sample<X, Y>>{self(), std::move(f)};
    else return RefusedData{};
  }

  /// Makes a row of each row, as map(f) does, in several threads, each with its own copy of f.
  ///
  /// order   the source's, unless how.order is any; f gets the same (row, place) either way
  template <class X = float, class Y = int, class F> requires(!IsField<X> && !IsField<Y>)
  auto map(F f, Parallel how) const {
    if constexpr (can_map<F, Sample<X, Y>>()) return ParallelMapped<D, F, Sample<X, Y>>{self(), std::move(f), how};
    else return RefusedData{};
  }

  /// Makes a row of named fields of each row: calls f(row, to) or f(row, to, place), where to[Title{}] is the vector of
  /// a field to fill. If f returns false, the row is left out.
  ///
  ///   auto tickets = data::text_lines(files).map<Title, Priority>(parse);
  ///
  /// to      its vectors keep their memory and content from row to row: resize them, then write every element
  /// throws  BadArgument, from next, when f gives a field of fixed shape another number of elements
  template <class... Fields, class F> requires(IsField<Fields> || ...) auto map(F f) const {
    if constexpr (names_fields<Fields...>()) return Mapped<D, F, Row<Fields...>>{self(), std::move(f)};
    else return self();  // so that the assert is the only error
  }

  /// Makes a row of named fields of each row, as map<Fields...>(f) does, in several threads, each with its own f.
  ///
  /// order   the source's, unless how.order is any; f gets the same (row, place) either way
  template <class... Fields, class F> requires(IsField<Fields> || ...) auto map(F f, Parallel how) const {
    if constexpr (names_fields<Fields...>()) return ParallelMapped<D, F, Row<Fields...>>{self(), std::move(f), how};
    else return self();
  }

  /// Makes a ragged field of a padded one, so that a network needs no mask:
  ///
  ///   struct Padded : Field<int, 80> {};                   // of words, then of zeros; or of zeros, then of words
  ///   struct Words : Field<int, ragged> {};
  ///   rows.unpad<Words>(Padded{}).batch(64)
  ///
  /// throws  BadArgument, from next, when a row has padding between its positions, or is nothing but padding
  /// source  mask_zero=True of tf.keras.layers.Embedding, tf.keras.layers.Masking
  template <IsField To, IsField From> auto unpad(From, Unpadding<From> how = {}) const {
    constexpr auto fits = detail::unpads<typename D::element, From, To>;
    static_assert(fits,
                  "chorale: unpad<To>(From{}) makes a ragged field of a padded one that the rows have: To is a "
                  "Field<T, ragged, D...> where From is a Field<T, steps, D...>");
    if constexpr (fits) return Unpad<typename D::element, From, To>::rows(self(), how);
    else return self();  // so that the assert is the only error
  }

  /// The elements for which f(element) is true.
  template <class F> auto filter(F f) const { return Filtered<D, F>{self(), std::move(f)}; }

  /// The first n elements of each pass. Rows need one order in all epochs, and each row once: after shuffle or repeat,
  /// take and skip would share rows. Batches may have any order: .shuffle(n).batch(64).take(100).
  auto take(std::size_t n) const { return ranged({.count = n}); }

  /// All but the first n elements of each pass, as take.
  auto skip(std::size_t n) const { return ranged({.first = n}); }

  /// Part i of n: elements i, i + n, i + 2 n and so on. The parts are disjoint, and together all elements. As take.
  auto shard(std::size_t n, std::size_t i) const { return ranged({.first = i, .step = n}); }

  /// The elements of this dataset, then the elements of another one.
  template <class Other> auto concatenate(Other other) const {
    return Concatenated<D, Other>{self(), std::move(other)};
  }

  /// Makes one row of several: concatenates their x, and their y, or each of their named fields.
  ///
  /// Fields  the fields of the window, in the order of the rows' fields; may be left out if all have a ragged first
  ///         dimension. A window of 64 rows of Field<int, 1> is a row of Field<int, 64>
  template <class... Fields> auto window(Window how) const {
    return Windowed<D, detail::WindowOf<typename D::element, Fields...>>{self(), how};
  }

  /// Keeps all rows in memory: the stages before it run once, in the first read.
  auto cache() const { return Cached<D>{self()}; }

  /// Keeps all rows in a file, which later runs of the program read: .cache(data::InFile{"train.rows"}).
  auto cache(InFile where) const { return FileCached<D>{self(), std::move(where)}; }

  /// Picks each element at random among the next `buffer` elements, in another order in each epoch.
  auto shuffle(std::size_t buffer, Seed seed = {}) const { return Shuffled<D>{self(), buffer, seed}; }

  /// Picks each element at random, in the same order in every epoch: Order::fixed. take, skip, shard and
  /// validation_split may follow, and another shuffle after them.
  auto shuffle(std::size_t buffer, Order order) const { return shuffle(buffer, Seed{}, order); }
  auto shuffle(std::size_t buffer, Seed seed, Order order) const {
    CHORALE_EXPECTS(order == Order::fixed, "shuffle gives each epoch another order if no Order is named");
    return Shuffled<D, Order::fixed>{self(), buffer, seed};
  }

  /// Gathers rows into batches; the last one of a pass may be smaller. A ragged field is as wide as the widest row of
  /// the batch, and padded with zeros.
  auto batch(GlobalBatch rows, Remainder remainder = Remainder::keep) const {
    if constexpr (!batches_rows()) return RefusedData{};
    else if constexpr (detail::RowType<typename D::element>::is_ragged)
      return PaddedBatched<D>{self(), rows, Padding{}, remainder};
    else return Batched<D>{self(), rows, remainder};
  }

  /// Gathers rows of different widths into batches: shorter rows are padded.
  auto padded_batch(GlobalBatch rows, Padding padding = {}, Remainder remainder = Remainder::keep) const {
    if constexpr (pads_rows<>()) return PaddedBatched<D>{self(), rows, padding, remainder};
    else return RefusedData{};
  }

  /// Gathers rows of named fields into batches, in which ragged fields are padded as the paddings say:
  ///
  ///   rows.padded_batch(64, data::PaddingOf<Body>{.length = 200, .value = -1})
  template <class... Fields> requires(sizeof...(Fields) > 0)
  auto padded_batch(GlobalBatch rows, PaddingOf<Fields>... padding) const {
    return padded_batch(rows, Remainder::keep, padding...);
  }
  template <class... Fields> requires(sizeof...(Fields) > 0)
  auto padded_batch(GlobalBatch rows, Remainder remainder, PaddingOf<Fields>... padding) const {
    if constexpr (pads_rows<Fields...>()) return PaddedBatched<D>{self(), rows, Padding{}, remainder, padding...};
    else return RefusedData{};
  }

  /// Gathers rows of similar lengths into batches, so that little of them is padding, with a number of rows for each
  /// bucket of lengths:
  ///
  ///   rows.bucket_by_sequence_length(Body{}, {.boundaries = {50, 200}, .rows = {256, 64, 16}})
  ///
  /// F       the ragged field whose length counts
  /// source  tf.data.Dataset.bucket_by_sequence_length
  template <class F> auto bucket_by_sequence_length(F, Buckets buckets) const {
    if constexpr (has_length<F>()) return BucketedByLength<D, F>{self(), std::move(buckets)};
    else return self();  // so that the assert is the only error
  }

  /// Concatenates n passes into one.
  auto repeat(std::size_t n) const { return Repeated<D>{self(), n}; }

  /// Makes up to n elements ahead of the reader, in its own thread; n may be auto_tune.
  auto prefetch(std::size_t n) const { return Prefetched<D>{self(), {.elements = n}}; }

  /// Makes elements ahead of the reader, bounded by number and bytes: .prefetch({.elements = 64, .bytes = 16 << 20}).
  auto prefetch(Ahead ahead) const { return Prefetched<D>{self(), ahead}; }

 private:
  D const& self() const { return static_cast<D const&>(*this); }

  template <class F, class Out> static constexpr bool can_map() {
    static_assert(is_row<typename D::element>, "chorale: map takes rows, not batches. Put it before .batch(n).");
    if constexpr (is_row<typename D::element>) return detail::expect_callable<F, typename D::element, Out>();
    else return false;
  }
  static constexpr bool batches_rows() {
    static_assert(is_row<typename D::element>, "chorale: batch takes rows, not batches. Write .batch(n) once.");
    return is_row<typename D::element>;
  }

  template <class... Fields> static constexpr bool pads_rows() {
    constexpr bool rows   = is_row<typename D::element>;
    constexpr bool has    = rows && (detail::has_field<typename D::element, Fields> && ...);
    constexpr bool ragged = has && (chorale::detail::is_ragged<Fields> && ...);
    static_assert(rows, "chorale: padded_batch takes rows, not batches. Write .padded_batch(n) once.");
    static_assert(!rows || has, "chorale: padded_batch pads a field that the rows do not have. Name it in map<...>");
    static_assert(!has || ragged,
                  "chorale: padded_batch pads ragged fields, and all rows of this one have the same "
                  "shape");
    return ragged;
  }

  auto ranged(Every which) const {
    constexpr bool rows = is_row<typename D::element>, one_order = !rows || !detail::reorders<D>,
                   once = !rows || !detail::repeats<D>;
    static_assert(one_order,
                  "chorale: take, skip and shard divide rows by their places, and shuffle gives each epoch "
                  "another order, so that rows would be on both sides. Put shuffle behind them, or write "
                  "shuffle(n, seed, Order::fixed), or put cache() behind shuffle");
    static_assert(!one_order || once,
                  "chorale: take, skip and shard divide rows by their places, and repeat gives each row several times, "
                  "so that rows would be on both sides. Put repeat behind them");
    if constexpr (one_order && once) {
      if constexpr (rows) detail::expect_one_order(!detail::reorders_by_option(self()));
      return Ranged<D>{self(), which};
    } else {
      return RefusedData{};
    }
  }

  template <class F> static constexpr bool has_length() {
    constexpr bool has = detail::has_ragged_field<typename D::element, F>;
    static_assert(has,
                  "chorale: bucket_by_sequence_length takes a ragged field of rows that are not in batches yet. "
                  "Name one in map<...>: struct Body : Field<int, ragged> {}");
    return has;
  }
  template <class... Fields> static constexpr bool names_fields() {
    static_assert(
        (IsField<Fields> && ...),
        "chorale: map<...> names Fields, and this names a type that is none. Derive a type for each part of a "
        "row: struct Title : Field<int, 40> {};");
    static_assert(chorale::detail::all_distinct<Fields...>, "chorale: a field is named twice in map<...>");
    return (IsField<Fields> && ...) && chorale::detail::all_distinct<Fields...>;
  }
};

/// The base of a stage after D: Pipe, or NoStages if the host cannot read the elements of D. See ToCuda.
struct NoStages {};
template <class D, class Stage>
using StagesAfter = std::conditional_t<requires { requires D::beyond_the_host; }, NoStages, Pipe<Stage>>;

/// The type of a dataset's streams.
template <class D> using StreamOf = decltype(std::declval<D const&>().stream(std::size_t{}));

/// Appends a description of a dataset, in lines that ranks compare before they train with it: its source, then each
/// stage that changes its elements. A user's dataset may have a member describe(lines); without it, ranks compare the
/// name of its type.
///
///   rows 60000
///   shuffle 10000 seed 1
///   batch 64 keep
///
/// keeps   it leaves out how rows are made, such as threads, caches and prefetching, and the functions of map
template <class D> void describe(D const& dataset, std::vector<std::string>& lines) {
  if constexpr (requires { dataset.describe(lines); }) dataset.describe(lines);
  else lines.push_back("source " + type_name<D>());
}

namespace detail {

inline std::string text_of(Remainder remainder) { return remainder == Remainder::keep ? "keep" : "drop"; }

}  // namespace detail

}  // namespace chorale::data
