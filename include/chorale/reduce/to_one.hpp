// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <vector>

namespace chorale {

/// An all-reduce under way through rank 0. See ReduceToOne.
template <Endpoint E>
class ToOneOperation {
 public:
  void restart(E& at, Span<float> x, Op op, Tag tag) {
    at_   = &at;
    x_    = x;
    op_   = op;
    tag_  = tag;
    peer_ = 1;
    if (at.size() == 1) {
      stage_ = Stage::complete;
    } else if (at.rank() == 0) {
      arrived_.resize(x.size());
      sent_.resize(static_cast<std::size_t>(at.size()));
      stage_   = Stage::gather;
      waiting_ = at.recv(peer_, tag, std::as_writable_bytes(Span<float>{arrived_}));
    } else {
      stage_   = Stage::give;
      waiting_ = at.send(0, tag, std::as_bytes(x));
    }
  }

  bool poll() {
    while (stage_ != Stage::complete && waiting_.done()) advance();
    return stage_ == Stage::complete;
  }

  void finish() {
    for (; stage_ != Stage::complete; advance()) waiting_.wait();
  }

 private:
  enum class Stage { gather, broadcast, give, take, complete };

  void advance() {                                                    // what was waited for is done
    switch (stage_) {
      case Stage::gather:
        combine_before(op_, x_, arrived_);
        if (++peer_ < at_->size()) {
          waiting_ = at_->recv(peer_, tag_, std::as_writable_bytes(Span<float>{arrived_}));
          break;
        }
        for (Rank to = 1; to < at_->size(); ++to)                     // all at once
          sent_[static_cast<std::size_t>(to)] = at_->send(to, tag_, std::as_bytes(x_));
        stage_ = Stage::broadcast;
        peer_  = 0;
        [[fallthrough]];
      case Stage::broadcast:
        if (++peer_ < at_->size()) waiting_ = sent_[static_cast<std::size_t>(peer_)];
        else stage_ = Stage::complete;
        break;
      case Stage::give:
        waiting_ = at_->recv(0, tag_, std::as_writable_bytes(x_));    // only now: the root has read x
        stage_   = Stage::take;
        break;
      case Stage::take:
      case Stage::complete: stage_ = Stage::complete;
    }
  }

  E* at_ = nullptr;
  Span<float> x_;
  Op    op_    = Op::sum;
  Tag   tag_   = {};
  Rank  peer_  = 0;
  Stage stage_ = Stage::complete;
  typename E::pending waiting_;
  std::vector<float> arrived_;                                        // at rank 0: what one peer sent
  std::vector<typename E::pending> sent_;                             // at rank 0: [peer]
};

/// All-reduce through rank 0: it gathers, combines and sends the result to all. The simple way, and the yardstick.
///
/// cost    2 steps. Rank 0 sends (P-1) · S bytes and receives as many, the others send S and receive S: rank 0's link
///         bounds the whole. Rank 0 keeps S bytes of scratch per operation; all_reduce() allocates them in each call
/// order   every element is combined in the order of ranks 0, 1, .., P-1: the bits of a serial loop over the ranks
/// source  tf.distribute.ReductionToOneDevice
struct ReduceToOne {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = ranks > 1 ? 2 : 0, .bytes = static_cast<std::size_t>(ranks - 1) * bytes};
  }

  template <Endpoint E>
  ToOneOperation<E> start(E& at, Span<float> x, Op op, Tag tag = {}) const {
    auto operation = ToOneOperation<E>{};
    operation.restart(at, x, op, tag);
    return operation;
  }

  template <Endpoint E>
  void all_reduce(E& at, Span<float> x, Op op, Tag tag = {}) const {
    start(at, x, op, tag).finish();
  }
};

}  // namespace chorale
