// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
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

/// One element of two, `a` from the ranks before, `b` from the next one. A NaN on either side stays.
///
/// order   min and max of zeros of both signs give b
template <Op op>
constexpr float combine(float a, float b) {
  if constexpr (op == Op::sum) return a + b;
  else if constexpr (op == Op::product) return a * b;
  else if constexpr (op == Op::min) return a < b || a != a ? a : b;
  else return a > b || a != a ? a : b;
}

/// Calls f with combine<op> as a function object: the choice is made once, outside of any loop over elements.
template <class F>
void with_combine(Op op, F&& f) {
  switch (op) {
    case Op::sum: return f([](float a, float b) { return combine<Op::sum>(a, b); });
    case Op::min: return f([](float a, float b) { return combine<Op::min>(a, b); });
    case Op::max: return f([](float a, float b) { return combine<Op::max>(a, b); });
    case Op::product: return f([](float a, float b) { return combine<Op::product>(a, b); });
  }
}

/// x[i] = combine(before[i], x[i]); the two do not overlap.
inline void combine_after(Op op, Span<float const> before, Span<float> x) {
  with_combine(op, [&](auto combined) {
    auto const* __restrict a = before.data();
    auto* __restrict b       = x.data();
    for (std::size_t i = 0; i < x.size(); ++i) b[i] = combined(a[i], b[i]);
  });
}

/// x[i] = combine(x[i], next[i]); the two do not overlap.
inline void combine_before(Op op, Span<float> x, Span<float const> next) {
  with_combine(op, [&](auto combined) {
    auto* __restrict a       = x.data();
    auto const* __restrict b = next.data();
    for (std::size_t i = 0; i < x.size(); ++i) a[i] = combined(a[i], b[i]);
  });
}

}  // namespace chorale
