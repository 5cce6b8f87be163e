// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <utility>

namespace chorale {

/// An all-reduce by the transport that is under way. See ReduceOperation.
///
/// order   restart() returns when all ranks have called it, even if their devices have not computed x yet
template <class E> class NativeOperation {
 public:
  static constexpr bool keeps_order = true;  // the transport runs one after another

  void restart(E& at, Span<float> x, Op op, Tag tag, CallSite where = CallSite::here()) {
    announce(at, {Collective::all_reduce, op, element_of<float>, x.size(), tag, where});
    at.start_all_reduce(x, op, under_way_);
  }
  bool poll() { return under_way_.done(); }
  void finish() { under_way_.wait(); }

 private:
  typename E::reduction under_way_;  // a Pending
};

/// The transport's own all-reduce. It blocks, unless the transport has start_all_reduce(), as NcclTransport has: then
/// buckets are reduced while backward computes. See CollectiveTransport.
///
/// cost    the transport's; at least as many bytes as any all-reduce must send
/// order   the transport's, which also decides whether all ranks have the same bits
struct NativeAllReduce {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = ranks > 1 ? 1 : 0,
            .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes / static_cast<std::size_t>(ranks)};
  }

  template <Endpoint E, Reducible T> requires requires(E& at, Span<T> x, Op op) { at.all_reduce(x, op); }
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    announce(at, {Collective::all_reduce, op, element_of<T>, x.size(), tag, where});
    at.all_reduce(x, op);
  }

  /// True if the all-reduce is enqueued after the calling thread's work on its device, so that the host need not wait.
  template <class E>
  static constexpr bool follows_queue = requires(E& at, Span<float> x) {
    typename E::reduction;
    at.start_all_reduce(x, Op::sum, std::declval<typename E::reduction&>());
  };
  template <Endpoint E> requires follows_queue<E>
  auto start(E& at, Span<float> x, Op op, Tag tag, CallSite where = CallSite::here()) const {
    auto operation = NativeOperation<E>{};
    operation.restart(at, x, op, tag, where);
    return operation;
  }
};

}  // namespace chorale
