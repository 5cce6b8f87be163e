// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <cstddef>

namespace chorale {

/// What an algorithm takes: messages that must follow one another, and bytes that the busiest rank sends.
struct Cost {
  int         steps = 0;
  std::size_t bytes = 0;

  friend constexpr bool operator==(Cost const&, Cost const&) = default;
};

/// Turns point-to-point messages into an all-reduce, in place, over a given transport.
template <class R, class T>
concept ReduceAlgorithm = Transport<T> && requires(R const& reduce, typename T::endpoint& at, Span<float> x) {
  { reduce.all_reduce(at, x, Op::sum) } -> std::same_as<void>;      // every rank ends with the same x
  { R::cost(8, std::size_t{1024}) }     -> std::same_as<Cost>;      // steps, and bytes sent by the busiest rank; tested
};

/// An all-reduce under way: a small state machine that the caller drives, without a thread.
///
/// keeps   x and the endpoint live until it is complete. Made by default, it is complete. restart() keeps the memory
///         that it worked with, so that from the second time on nothing is allocated for an x that is no longer
/// order   operations with different tags may be under way at once on one endpoint. Ranks that finish() them, instead
///         of polling all, do so in the same order
template <class O, class E>
concept ReduceOperation = std::default_initializable<O> && std::movable<O> &&
    requires(O operation, E& at, Span<float> x, Op op, Tag tag) {
      { operation.restart(at, x, op, tag) } -> std::same_as<void>;  // only when complete; sends, and does not block
      { operation.poll() }                  -> std::same_as<bool>;  // what progress is possible; true when complete
      { operation.finish() }                -> std::same_as<void>;  // blocks until complete
    };

/// An algorithm whose all-reduces can be under way while the caller computes. all_reduce() is start() and finish().
template <class R, class E>
concept ResumableReduce = requires(R const& reduce, E& at, Span<float> x, Tag tag) {
  { reduce.start(at, x, Op::sum, tag) } -> ReduceOperation<E>;      // the same tag on every rank
};

/// A complete operation of this algorithm, to be restarted. An algorithm that must look at the group first has idle(),
/// which all ranks call together.
template <class R, class E>
  requires ResumableReduce<R, E>
auto idle_operation(R const& reduce, E& at) {
  if constexpr (requires { reduce.idle(at); }) return reduce.idle(at);
  else return decltype(reduce.start(at, Span<float>{}, Op::sum, Tag{})){};
}

}  // namespace chorale
