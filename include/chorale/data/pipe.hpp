// SPDX-License-Identifier: Apache-2.0
//
// In one piece: all stages, each in a few lines, with what they are told and what they refuse.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/elements.hpp>

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// A recipe for elements, cheap to copy: each call of stream starts one pass. See data::digits, data::from_tensors.
///
/// order   a pass is a function of (the recipe, epoch): the same elements in the same order, for any number of threads
template <class D>
concept Dataset = std::copy_constructible<D> && requires(D const& dataset, std::size_t epoch,
                                                         typename D::element& element) {
  { dataset.stream(epoch) } -> std::move_constructible;                        // pass number epoch, 0-based
  { dataset.stream(epoch).next(element) } -> std::same_as<bool>;    // false at the end; a view until the next call
  { dataset.size() } -> std::same_as<std::optional<std::size_t>>;   // elements of one pass, where that is known
};

/// A dataset whose elements stay in place as long as one of its streams or copies exists: no stage has to copy them.
template <class D>
concept Stable = Dataset<D> && requires { requires D::stable; };

}  // namespace chorale

namespace chorale::data {

namespace detail {

template <class Row, class F>
inline constexpr bool has_field = false;
template <class... G, class F>
inline constexpr bool has_field<Row<G...>, F> = chorale::detail::FieldList<G...>::template has<F>;
template <class Row, class F>
inline constexpr bool has_ragged_field = has_field<Row, F> && chorale::detail::is_ragged<F>;

/// True if rows have padded field From, whose positions ragged field To may have.
template <class Row, class From, class To>
inline constexpr bool unpads = false;
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

}  // namespace detail

/// A selection of elements of a pass: number `first`, then every `step`-th after it, at most `count` in all.
struct Every {
  std::size_t first = 0, step = 1, count = std::numeric_limits<std::size_t>::max();
};

/// Whether batch keeps or drops the last rows of a pass if they do not fill a batch.
enum class Remainder { keep, drop };

/// The order of elements that several threads make: the same for any number of threads, or as they are ready.
enum class Order { fixed, any };

/// The file in which cache keeps rows; a run that does not find it makes it. A file that other stages made is refused.
///
/// functions   of the stages before the cache, whose code a program cannot look into: another text when they change
struct InFile {
  std::filesystem::path path;
  std::string functions{};
};

/// A number of threads or elements that the stage chooses itself, by measurements while it runs.
///
///   rows.map(f, {.threads = data::auto_tune}).batch(64).prefetch(data::auto_tune)
///
/// order   rows and their order are the same as with any other number
/// source  tf.data.AUTOTUNE
inline constexpr auto auto_tune = std::numeric_limits<std::size_t>::max();

/// How map spreads rows over threads. A thread takes rows in runs: of 1 row if f takes long, else of up to 64 rows.
struct Parallel {
  std::size_t threads = 0;                                 // 0: one per core; auto_tune: up to one per core
  std::size_t ahead   = 0;                                 // rows that wait for the reader; 0: two runs for each thread
  Order order         = Order::fixed;
};

/// How far prefetch runs ahead of the reader, which holds one more element.
struct Ahead {
  std::size_t elements = 2;                                // auto_tune: from 2 to 64, by default with bytes = 256 MiB
  std::size_t bytes    = std::numeric_limits<std::size_t>::max();          // while it holds so many, it makes no more
};

/// How window makes one row of several: of `size` rows, each `stride` rows after the one before. The next window begins
/// `shift` rows after this one.
struct Window {
  std::size_t size    = 1;
  std::size_t shift   = 0;                                 // 0: size, so that windows do not overlap
  std::size_t stride  = 1;
  Remainder remainder = Remainder::drop;                   // keep: the last windows have fewer rows
};

/// How padded_batch makes rows equally wide.
struct Padding {
  std::size_t width = 0, targets = 0;                      // of every row; 0: as wide as the widest one of the batch
  double x = 0, y = 0;                                     // appended to shorter rows
};

/// How padded_batch pads a ragged field.
template <IsField F>
struct PaddingOf {
  std::size_t length = 0;                                  // of the ragged dimension; 0: that of the longest row
  typename F::element_type value = 0;                      // appended to shorter rows
};

/// Whether unpad refuses or keeps rows that are nothing but padding.
enum class EmptyRows { refuse, keep };

/// What unpad takes for padding of a field.
template <IsField F>
struct Unpadding {
  typename F::element_type value = 0;                      // of all numbers of a position
  EmptyRows empty_rows           = EmptyRows::refuse;      // keep: rows without positions, of which layers give zeros
};

/// How bucket_by_sequence_length sorts rows by their lengths. Bucket i has the lengths from boundary i - 1 to below
/// boundary i, and a last one all others.
struct Buckets {
  std::vector<std::size_t> boundaries;                     // ascending
  std::vector<GlobalBatch> rows;                           // of a batch of each bucket: one more than boundaries
  Remainder remainder = Remainder::keep;                   // of the rows that do not fill a batch at the end of a pass
};

namespace detail {

template <class F, class In, class Out>
constexpr bool expect_callable();                          // in stages/map.hpp

}  // namespace detail

template <class D, class F, class Out> class Mapped;
template <class D, class F, class Out> class ParallelMapped;
template <class D, class F, class Out> class MapBatched;
template <class In, IsField From, IsField To> class Unpad;
template <class D, class F> class Filtered;
template <class D> class Ranged;
template <class A, class B> class Concatenated;
template <class D, class Out> class Windowed;
template <class D> class PaddedBatched;
template <class D, class F> class BucketedByLength;
template <class D> class Cached;
template <class D> class FileCached;
template <class D> class Shuffled;
template <class D> class ShuffleRepeated;
template <class D> class Batched;
template <class D> class Repeated;
template <class D> class Prefetched;

/// The dataset in place of one that the compiler has refused with a sentence. What takes it says nothing more.
struct RefusedData {
  template <class...>
  RefusedData map(auto&&) const { return {}; }
  template <class...>
  RefusedData map(auto&&, Parallel) const { return {}; }
  template <class...>
  RefusedData unpad(auto&&...) const { return {}; }
  RefusedData filter(auto&&...) const { return {}; }
  RefusedData take(std::size_t) const { return {}; }
  RefusedData skip(std::size_t) const { return {}; }
  RefusedData shard(std::size_t, std::size_t) const { return {}; }
  RefusedData concatenate(auto&&) const { return {}; }
  template <class...>
  RefusedData window(Window) const { return {}; }
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
template <class D>
class Pipe {
 public:
  /// Makes a row of each row: calls f(row, x, y) or f(row, x, y, place), which fills two vectors that become the new
  /// row. If f returns false, the row is left out.
  ///
  /// X, Y    the numbers of the rows that f makes: map<float, float>(f) for a regression
  /// x, y    keep their memory and content from row to row: resize them, then write every element
  template <class X = float, class Y = int, class F> requires(!IsField<X> && !IsField<Y>)
  auto map(F f) const {
    if constexpr (can_map<F, Sample<X, Y>>()) return Mapped<D, F, Sample<X, Y>>{self(), std::move(f)};
    else return RefusedData{};
  }

  /// Makes a row of each row, as map(f) does, in several threads, each with its own copy of f.
  ///
  /// order   that of the source, unless how.order is any; f gets the same (row, place) either way
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
  template <class... Fields, class F> requires(IsField<Fields> || ...)
  auto map(F f) const {
    if constexpr (names_fields<Fields...>()) return Mapped<D, F, Row<Fields...>>{self(), std::move(f)};
    else return self();                                    // so that the assert is the only error
  }

  /// Makes a row of named fields of each row, as map<Fields...>(f) does, in several threads, each with its own f.
  ///
  /// order   that of the source, unless how.order is any; f gets the same (row, place) either way
  template <class... Fields, class F> requires(IsField<Fields> || ...)
  auto map(F f, Parallel how) const {
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
  template <IsField To, IsField From>
  auto unpad(From, Unpadding<From> how = {}) const {
    constexpr auto fits = detail::unpads<typename D::element, From, To>;
    static_assert(fits, "chorale: unpad<To>(From{}) makes a ragged field of a padded one that the rows have: To is a "
                        "Field<T, ragged, D...> where From is a Field<T, steps, D...>");
    if constexpr (fits) return Unpad<typename D::element, From, To>::rows(self(), how);
    else return self();                                    // so that the assert is the only error
  }

  /// The elements for which f(element) is true.
  template <class F>
  auto filter(F f) const { return Filtered<D, F>{self(), std::move(f)}; }

  /// The first n elements of each pass.
  auto take(std::size_t n) const { return Ranged<D>{self(), {.count = n}}; }

  /// All but the first n elements of each pass.
  auto skip(std::size_t n) const { return Ranged<D>{self(), {.first = n}}; }

  /// Part i of n: elements i, i + n, i + 2 n and so on. The parts are disjoint, and together all elements.
  auto shard(std::size_t n, std::size_t i) const { return Ranged<D>{self(), {.first = i, .step = n}}; }

  /// The elements of this dataset, then those of another one.
  template <class Other>
  auto concatenate(Other other) const { return Concatenated<D, Other>{self(), std::move(other)}; }

  /// Makes one row of several: concatenates their x, and their y, or each of their named fields.
  ///
  /// Fields  the fields of the window, in the order of those of the rows; may be left out if all have a ragged first
  ///         dimension. A window of 64 rows of Field<int, 1> is a row of Field<int, 64>
  template <class... Fields>
  auto window(Window how) const { return Windowed<D, detail::WindowOf<typename D::element, Fields...>>{self(), how}; }

  /// Keeps all rows in memory: the stages before it run once, in the first read.
  auto cache() const { return Cached<D>{self()}; }

  /// Keeps all rows in a file, which later runs of the program read: .cache(data::InFile{"train.rows"}).
  auto cache(InFile where) const { return FileCached<D>{self(), std::move(where)}; }

  /// Picks each element at random among the next `buffer` elements, in another order in each epoch.
  auto shuffle(std::size_t buffer, Seed seed = {}) const { return Shuffled<D>{self(), buffer, seed}; }

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
  template <class F>
  auto bucket_by_sequence_length(F, Buckets buckets) const {
    if constexpr (has_length<F>()) return BucketedByLength<D, F>{self(), std::move(buckets)};
    else return self();                                    // so that the assert is the only error
  }

  /// Concatenates n passes into one.
  auto repeat(std::size_t n) const { return Repeated<D>{self(), n}; }

  /// Makes up to n elements ahead of the reader, in its own thread; n may be auto_tune.
  auto prefetch(std::size_t n) const { return Prefetched<D>{self(), {.elements = n}}; }

  /// Makes elements ahead of the reader, bounded by number and bytes: .prefetch({.elements = 64, .bytes = 16 << 20}).
  auto prefetch(Ahead ahead) const { return Prefetched<D>{self(), ahead}; }

 private:
  D const& self() const { return static_cast<D const&>(*this); }

  template <class F, class Out>
  static constexpr bool can_map() {
    static_assert(is_row<typename D::element>, "chorale: map takes rows, not batches. Put it before .batch(n).");
    if constexpr (is_row<typename D::element>) return detail::expect_callable<F, typename D::element, Out>();
    else return false;
  }
  static constexpr bool batches_rows() {
    static_assert(is_row<typename D::element>, "chorale: batch takes rows, not batches. Write .batch(n) once.");
    return is_row<typename D::element>;
  }

  template <class... Fields>
  static constexpr bool pads_rows() {
    constexpr bool rows   = is_row<typename D::element>;
    constexpr bool has    = rows && (detail::has_field<typename D::element, Fields> && ...);
    constexpr bool ragged = has && (chorale::detail::is_ragged<Fields> && ...);
    static_assert(rows, "chorale: padded_batch takes rows, not batches. Write .padded_batch(n) once.");
    static_assert(!rows || has, "chorale: padded_batch pads a field that the rows do not have. Name it in map<...>");
    static_assert(!has || ragged, "chorale: padded_batch pads ragged fields, and all rows of this one have the same "
                                  "shape");
    return ragged;
  }

  template <class F>
  static constexpr bool has_length() {
    constexpr bool has = detail::has_ragged_field<typename D::element, F>;
    static_assert(has, "chorale: bucket_by_sequence_length takes a ragged field of rows that are not in batches yet. "
                       "Name one in map<...>: struct Body : Field<int, ragged> {}");
    return has;
  }
  template <class... Fields>
  static constexpr bool names_fields() {
    static_assert((IsField<Fields> && ...),
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
template <class D>
using StreamOf = decltype(std::declval<D const&>().stream(std::size_t{}));

/// Appends a description of a dataset, in lines that ranks compare before they train with it: its source, then each
/// stage that changes its elements. A user's dataset may have a member describe(lines); without it, ranks compare the
/// name of its type.
///
///   rows 60000
///   shuffle 10000 seed 1
///   batch 64 keep
///
/// keeps   it leaves out how rows are made, such as threads, caches and prefetching, and the functions of map
template <class D>
void describe(D const& dataset, std::vector<std::string>& lines) {
  if constexpr (requires { dataset.describe(lines); }) dataset.describe(lines);
  else lines.push_back("source " + type_name<D>());
}

namespace detail {

inline std::string text_of(Remainder remainder) { return remainder == Remainder::keep ? "keep" : "drop"; }

}  // namespace detail

}  // namespace chorale::data
