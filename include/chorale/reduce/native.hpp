// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <utility>

namespace chorale {

/// An all-reduce of the transport's under way. See ReduceOperation.
///
/// order   restart() returns when all ranks have come to it, which need not have computed x by then
template <class E>
class NativeOperation {
 public:
  static constexpr bool keeps_order = true;                                // they are calls, one after the other

  void restart(E& at, Span<float> x, Op op, Tag tag, CallSite where = CallSite::here()) {
    announce(at, {Collective::all_reduce, op, element_of<float>, x.size(), tag, where});
    at.start_all_reduce(x, op, under_way_);
  }
  bool poll() { return under_way_.done(); }
  void finish() { under_way_.wait(); }

 private:
  typename E::reduction under_way_;                                        // a Pending
};

/// The all-reduce that the transport has of its own. It blocks, unless the transport has start_all_reduce(), as NCCL's:
/// then buckets are reduced while backward computes. See CollectiveTransport.
///
/// cost    the transport's; as many bytes as any all-reduce must send, at least
/// order   the transport's: whether all ranks have the same bits is its promise, not ours
struct NativeAllReduce {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = ranks > 1 ? 1 : 0, .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes /
                                                 static_cast<std::size_t>(ranks)};
  }

  template <Endpoint E, Reducible T>
    requires requires(E& at, Span<T> x, Op op) { at.all_reduce(x, op); }
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    announce(at, {Collective::all_reduce, op, element_of<T>, x.size(), tag, where});
    at.all_reduce(x, op);
  }

  /// It begins when what the calling thread has queued on its device is done, and so need not wait for that.
  template <class E>
  static constexpr bool follows_queue = requires(E& at, Span<float> x) {
    typename E::reduction;
    at.start_all_reduce(x, Op::sum, std::declval<typename E::reduction&>());
  };
  template <Endpoint E>
    requires follows_queue<E>
  auto start(E& at, Span<float> x, Op op, Tag tag, CallSite where = CallSite::here()) const {
    auto operation = NativeOperation<E>{};
    operation.restart(at, x, op, tag, where);
    return operation;
  }
};

}  // namespace chorale
