// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <cstddef>
#include <vector>

namespace chorale {

/// An all-reduce under way around a ring. See RingAllReduce.
template <Endpoint E>
class RingOperation {
 public:
  void restart(E& at, Span<float> x, Op op, Tag tag) {
    at_   = &at;
    x_    = x;
    op_   = op;
    tag_  = tag;
    step_ = 0;
    arrived_.resize(x.size() / static_cast<std::size_t>(at.size()) + 1);
    if (step_ < steps()) begin_step();
  }

  bool poll() {
    while (step_ < steps()) {
      if (!added_) {
        if (!received_.done()) return false;
        if (scatters()) combine_after(op_, Span<float const>{arrived_}.first(mine().size()), mine());
        added_ = true;
      }
      if (!sent_.done()) return false;
      if (++step_ < steps()) begin_step();
    }
    return true;
  }

  void finish() {
    while (!poll()) (added_ ? sent_ : received_).wait();              // in this order: in a ring of two, both would
  }                                                                   // wait for the other to receive first

 private:
  void begin_step() {
    auto const P = at_->size(), me = at_->rank();
    auto const in = scatters() ? Span<float>{arrived_}.first(mine().size()) : mine();
    added_    = false;
    sent_     = at_->send((me + 1) % P, tag_, std::as_bytes(chunk(me - step_)));
    received_ = at_->recv((me + P - 1) % P, tag_, std::as_writable_bytes(in));
  }

  Span<float> chunk(int i) const {                                    // i is taken modulo P, and at least -2 P
    auto const P    = at_->size();
    auto const part = share(x_.size(), (i + 2 * P) % P, P);
    return x_.subspan(part.begin, part.size());
  }
  Span<float> mine() const { return chunk(at_->rank() - step_ - 1); } // the chunk that arrives in this step
  int  steps() const { return at_ == nullptr ? 0 : 2 * (at_->size() - 1); }
  bool scatters() const { return step_ < at_->size() - 1; }

  E* at_ = nullptr;
  Span<float> x_;
  Op   op_    = Op::sum;
  Tag  tag_   = {};
  int  step_  = 0;
  bool added_ = false;
  typename E::pending sent_, received_;
  std::vector<float> arrived_;                                        // one chunk
};

/// All-reduce around a ring: reduce-scatter, then all-gather; every message goes rank -> rank + 1.
///
///   P = 4 and x cut into P chunks; the table shows which chunk each rank sends
///            rank 0   rank 1   rank 2   rank 3
///   step 0      0        1        2        3     ┐
///   step 1      3        0        1        2     │ reduce-scatter: combine with what arrives
///   step 2      2        3        0        1     ┘ now rank r holds chunk r+1 in full
///   step 3      1        2        3        0     ┐
///   step 4      0        1        2        3     │ all-gather: keep what arrives
///   step 5      3        0        1        2     ┘
///
/// cost    2(P-1) steps; 2(P-1)/P · S bytes sent per rank, the least that any all-reduce can send. An operation keeps
///         S/P bytes of scratch; all_reduce() allocates them in each call
/// order   chunk c is combined in the order of ranks c, c+1, .., c+P-1: the same bits in every run with P ranks
/// source  Patarasuk & Yuan, JPDC 69(2), 2009
struct RingAllReduce {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = 2 * (ranks - 1), .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes /
                                               static_cast<std::size_t>(ranks)};
  }

  template <Endpoint E>
  RingOperation<E> start(E& at, Span<float> x, Op op, Tag tag = {}) const {
    auto operation = RingOperation<E>{};
    operation.restart(at, x, op, tag);
    return operation;
  }

  template <Endpoint E>
  void all_reduce(E& at, Span<float> x, Op op, Tag tag = {}) const {
    start(at, x, op, tag).finish();
  }
};

}  // namespace chorale
