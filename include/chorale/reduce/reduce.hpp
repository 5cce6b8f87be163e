// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <cstddef>

namespace chorale {

/// The cost of an algorithm: messages that must follow one another, and bytes that the busiest rank sends.
struct Cost {
  int steps         = 0;
  std::size_t bytes = 0;

  friend constexpr bool operator==(Cost const&, Cost const&) = default;
};

/// An algorithm that turns point-to-point messages into an all-reduce, in place, over a given transport.
template <class R, class T>
concept ReduceAlgorithm = Transport<T> && requires(R const& reduce, typename T::endpoint& at, Span<float> x) {
  { reduce.all_reduce(at, x, Op::sum) } -> std::same_as<void>;  // every rank ends with the same x
  { R::cost(8, std::size_t{1024}) } -> std::same_as<Cost>;      // steps, and bytes sent by the busiest rank; tested
};

/// An all-reduce under way: a small state machine that the caller drives, without a thread.
///
/// keeps   x and the endpoint live until it is complete. A default-constructed operation is complete. restart() keeps
///         its working memory, so that from the second time on nothing is allocated for an x that is not longer
/// order   operations with different tags may be under way at once on one endpoint. Ranks that finish() them, instead
///         of polling all, do so in the same order
template <class O, class E>
concept ReduceOperation =
    std::default_initializable<O> && std::movable<O> && requires(O operation, E& at, Span<float> x, Op op, Tag tag) {
      { operation.restart(at, x, op, tag) } -> std::same_as<void>;  // only when complete; sends, and does not block
      { operation.poll() } -> std::same_as<bool>;                   // advances if possible; true when complete
      { operation.finish() } -> std::same_as<void>;                 // blocks until complete
    };

/// An algorithm whose all-reduces can be under way while the caller computes. all_reduce() is start() and finish().
template <class R, class E>
concept ResumableReduce = requires(R const& reduce, E& at, Span<float> x, Tag tag) {
  { reduce.start(at, x, Op::sum, tag) } -> ReduceOperation<E>;  // the same tag on every rank
};

/// Returns a complete operation of this algorithm, to be restarted. An algorithm that must measure the group first has
/// idle(), which all ranks call together.
template <class R, class E> requires ResumableReduce<R, E> auto idle_operation(R const& reduce, E& at) {
  if constexpr (requires { reduce.idle(at); }) return reduce.idle(at);
  else return decltype(reduce.start(at, Span<float>{}, Op::sum, Tag{})){};
}

/// Algorithms that round or leave out what they send, and name an exact one for what must arrive as it is.
template <class R> concept LossyReduce = requires { typename R::exact; };

/// Algorithms that add up gradients of logical shards, whose number does not depend on the ranks. See Reproducible.
template <class R> concept ShardedReduce = requires { R::logical_shards; };

/// True if R gives sums of what each rank brought, neither rounded nor cut, so that gradients may be accumulated first.
template <class R> inline constexpr bool gives_plain_sums = !LossyReduce<R> && !ShardedReduce<R>;

}  // namespace chorale
