// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/elements.hpp>

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace chorale {

/// A recipe for elements, cheap to copy: each call of stream starts one pass. See data::digits, data::from_tensors.
///
/// order   a pass is a function of (the recipe, epoch): the same elements in the same order, for any number of threads
template <class D>
concept Dataset =
    std::copy_constructible<D> && requires(D const& dataset, std::size_t epoch, typename D::element& element) {
      { dataset.stream(epoch) } -> std::move_constructible;            // pass number epoch, 0-based
      { dataset.stream(epoch).next(element) } -> std::same_as<bool>;   // false at the end; a view until the next call
      { dataset.size() } -> std::same_as<std::optional<std::size_t>>;  // elements of one pass, where that is known
    };

/// A dataset whose elements stay in place as long as one of its streams or copies exists: no stage has to copy them.
template <class D> concept Stable = Dataset<D> && requires { requires D::stable; };

}  // namespace chorale

namespace chorale::data {

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
  std::size_t threads = 0;  // 0: one per core; auto_tune: up to one per core
  std::size_t ahead   = 0;  // rows that wait for the reader; 0: two runs for each thread
  Order order         = Order::fixed;
};

/// How far prefetch runs ahead of the reader, which holds one more element.
struct Ahead {
  std::size_t elements = 2;  // auto_tune: from 2 to 64, by default with bytes = 256 MiB
  std::size_t bytes    = std::numeric_limits<std::size_t>::max();  // while it holds so many, it makes no more
};

/// How window makes one row of several: of `size` rows, each `stride` rows after the one before. The next window begins
/// `shift` rows after this one.
struct Window {
  std::size_t size    = 1;
  std::size_t shift   = 0;  // 0: size, so that windows do not overlap
  std::size_t stride  = 1;
  Remainder remainder = Remainder::drop;  // keep: the last windows have fewer rows
};

/// How padded_batch makes rows equally wide.
struct Padding {
  std::size_t width = 0, targets = 0;  // of every row; 0: as wide as the widest one of the batch
  double x = 0, y = 0;                 // appended to shorter rows
};

/// How padded_batch pads a ragged field.
template <IsField F> struct PaddingOf {
  std::size_t length             = 0;  // of the ragged dimension; 0: the length of the longest row
  typename F::element_type value = 0;  // appended to shorter rows
};

/// Whether unpad refuses or keeps rows that are nothing but padding.
enum class EmptyRows { refuse, keep };

/// What unpad takes for padding of a field.
template <IsField F> struct Unpadding {
  typename F::element_type value = 0;                  // of all numbers of a position
  EmptyRows empty_rows           = EmptyRows::refuse;  // keep: rows without positions, for which layers give zeros
};

/// How bucket_by_sequence_length sorts rows by their lengths. Bucket i has the lengths from boundary i - 1 to below
/// boundary i, and a last one all others.
struct Buckets {
  std::vector<std::size_t> boundaries;    // ascending
  std::vector<GlobalBatch> rows;          // of a batch of each bucket: one more than boundaries
  Remainder remainder = Remainder::keep;  // of the rows that do not fill a batch at the end of a pass
};

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
template <class D, Order order = Order::any> class Shuffled;
template <class D> class ShuffleRepeated;
template <class D> class Gathered;
template <class D> class Batched;
template <class D> class Repeated;
template <class D> class Prefetched;

namespace detail {

/// True if a dataset has another order in each epoch by its type: a shuffle or a gather, with no cache after it.
template <class D> inline constexpr bool reorders = false;
template <template <class...> class Stage, class... Parts>
inline constexpr bool reorders<Stage<Parts...>> = ((Dataset<Parts> && reorders<Parts>) || ...);
template <class D> inline constexpr bool reorders<Shuffled<D, Order::any>>   = true;
template <class D> inline constexpr bool reorders<Shuffled<D, Order::fixed>> = reorders<D>;
template <class D> inline constexpr bool reorders<ShuffleRepeated<D>>        = true;
template <class D> inline constexpr bool reorders<Gathered<D>>               = true;
template <class D> inline constexpr bool reorders<Cached<D>>                 = false;
template <class D> inline constexpr bool reorders<FileCached<D>>             = false;

/// Whether a stage reorders rows by its options, such as Interleave::shuffle and Order::any of a map.
template <class D> bool reorders_by_option(D const& dataset) {
  if constexpr (requires { dataset.reorders(); }) return dataset.reorders();
  else return false;
}

/// True if a dataset has the same rows several times: it has a repeat among its stages, also before a cache.
template <class D> inline constexpr bool repeats = false;
template <template <class...> class Stage, class... Parts>
inline constexpr bool repeats<Stage<Parts...>> = ((Dataset<Parts> && repeats<Parts>) || ...);
template <class D, Order order> inline constexpr bool repeats<Shuffled<D, order>> = repeats<D>;
template <class D> inline constexpr bool repeats<ShuffleRepeated<D>>              = true;
template <class D> inline constexpr bool repeats<Repeated<D>>                     = true;

/// True if a dataset has some elements of a pass, by their places, that are other rows in another epoch or come again.
template <class D> inline constexpr bool cuts_shuffled = false;
template <template <class...> class Stage, class... Parts>
inline constexpr bool cuts_shuffled<Stage<Parts...>> = ((Dataset<Parts> && cuts_shuffled<Parts>) || ...);
template <class D, Order order> inline constexpr bool cuts_shuffled<Shuffled<D, order>> = cuts_shuffled<D>;
template <class D> inline constexpr bool cuts_shuffled<Ranged<D>> = reorders<D> || repeats<D> || cuts_shuffled<D>;

inline void expect_one_order(bool one) {
  CHORALE_EXPECTS(one,
                  "take, skip, shard and validation_split divide rows by their places, and Interleave::shuffle, or "
                  "Order::any of a map before it, gives each epoch another order: put cache() before it, or leave "
                  "that option out");
}

}  // namespace detail

}  // namespace chorale::data
