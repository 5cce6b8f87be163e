// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace chorale {
namespace detail {

/// a[i] = b[i] = combined(a[i], b[i]), in one pass.
template <Reducible T, class F> void combine_two(T* __restrict a, T* __restrict b, std::size_t n, F combined) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = combined(a[i], b[i]);
}

/// Combines elements `part` of all buffers, in the order of the buffers, and writes the result to `part` of each `to`.
template <Reducible T, class F> void combine_all(Span<T* const> buffers, Span<T* const> to, Range part, F combined) {
  constexpr std::size_t segment = 4'096 / sizeof(T);  // partial results stay in the L1 cache
  std::array<T, segment> results;
  for (auto begin = part.begin; begin < part.end; begin += segment) {
    auto const n          = std::min(segment, part.end - begin);
    T* __restrict const x = results.data();
    std::copy_n(buffers[0] + begin, n, x);
    for (auto* const buffer : buffers.subspan(1)) {
      T const* __restrict const next = buffer + begin;
      for (std::size_t i = 0; i < n; ++i) x[i] = combined(x[i], next[i]);
    }
    for (auto* const buffer : to) std::copy_n(x, n, buffer + begin);
  }
}

}  // namespace detail

/// An all-reduce under way in the ranks' own buffers. See DirectAllReduce.
template <DirectAccessEndpoint E, Reducible T> class DirectOperation {
 public:
  void restart(E& at, Span<T> x, Op op, Tag tag, CallSite where = {}) {
    everywhere_ = true;
    announce(at, {Collective::all_reduce, op, element_of<T>, x.size(), tag, where});
    restart(at, x, share(x.size(), at.rank(), at.size()), op, tag);
  }

  /// Starts a reduce-scatter: each rank's chunk, which ends where job.ends says, is combined into its own buffer only.
  void restart(E& at, CollectiveCall<T> const& job) {
    auto const i = static_cast<std::size_t>(at.rank());
    everywhere_  = false;
    announce(at, {job.collective, job.op, element_of<T>, job.x.size(), job.tag, job.where, no_root,
                  fingerprint_of(job.ends)});
    restart(at, job.x, {i == 0 ? 0 : job.ends[i - 1], job.ends[i]}, job.op, job.tag);
  }

  bool poll() {
    while (stage_ != Stage::complete && waiting_.done()) advance();
    return stage_ == Stage::complete;
  }

  void finish() {
    for (; stage_ != Stage::complete; advance()) waiting_.wait();
  }

 private:
  enum class Stage { exposed, left, complete };

  static constexpr int most = 256;

  void restart(E& at, Span<T> x, Range mine, Op op, Tag tag) {
    CHORALE_EXPECTS(at.size() <= most, "DirectAllReduce takes at most " + std::to_string(most) + " ranks, got " +
                                           std::to_string(at.size()));
    at_    = &at;
    op_    = op;
    tag_   = tag;
    stage_ = Stage::complete;
    if (at.size() == 1) return;
    waiting_ = at.expose(tag, std::as_writable_bytes(x));
    stage_   = Stage::exposed;
    part_    = mine;  // computed while the peers expose
  }

  void advance() {  // waiting_ is done
    if (stage_ == Stage::exposed) {
      combine_share();
      waiting_ = at_->leave(tag_);
      stage_   = Stage::left;
    } else {
      stage_ = Stage::complete;
    }
  }

  void combine_share() {
    auto const P = at_->size();
    std::array<T*, most> all;  // filled up to P
    for (Rank r = 0; r < P; ++r)
      all[static_cast<std::size_t>(r)] = reinterpret_cast<T*>(at_->peer(r, tag_).data());  // exposed as T
    auto const buffers = Span<T* const>{all.data(), static_cast<std::size_t>(P)};
    auto const own     = static_cast<std::size_t>(at_->rank());
    auto const moved   = static_cast<std::size_t>(P - 1) * part_.size() * sizeof(T);
    auto const hold    = at_->hold(everywhere_ ? 2 * moved : moved);
    with_combine(op_, [&](auto combined) {
      if (!everywhere_) detail::combine_all(buffers, buffers.subspan(own, 1), part_, combined);
      else if (P == 2) detail::combine_two(all[0] + part_.begin, all[1] + part_.begin, part_.size(), combined);
      else detail::combine_all(buffers, buffers, part_, combined);
    });
  }

  E* at_ = nullptr;
  Range part_;              // this rank's share
  bool everywhere_ = true;  // results are written into all buffers
  Op op_           = Op::sum;
  Tag tag_         = {};
  Stage stage_     = Stage::complete;
  typename E::pending waiting_;
};

/// The first half of DirectAllReduce: each rank combines its chunk directly from all buffers into its own.
///
/// cost    2 steps; (P-1)/P · S bytes are read from peers
/// order   as DirectAllReduce
struct DirectReduceScatter {
  static constexpr Collective collective = Collective::reduce_scatter;
};

/// All-reduce without messages: each rank combines its share directly from all buffers and writes it into all.
///
///   P = 3      rank 0's x   rank 1's x   rank 2's x
///   share 0        *            *            *        read, combined and written by rank 0 alone
///   share 1        *            *            *        by rank 1
///   share 2        *            *            *        by rank 2
///
/// cost    2 steps: all ranks have exposed, all ranks have left. Each rank reads and writes (P-1)/P · S bytes of its
///         peers' memory, 2(P-1)/P · S in all; no scratch, no allocation
/// order   every element is combined in the order of ranks 0, 1, .., P-1: the bits of a serial loop over the ranks
/// keeps   x is read and written by peers until the operation is complete; at most 256 ranks
struct DirectAllReduce {
  using scatter = DirectReduceScatter;
  using gather  = RingAllGather;  // variables need not lie where peers can read them

  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = ranks > 1 ? 2 : 0,
            .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes / static_cast<std::size_t>(ranks)};
  }

  template <DirectAccessEndpoint E, Reducible T>
  DirectOperation<E, T> start(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    auto operation = DirectOperation<E, T>{};
    operation.restart(at, x, op, tag, where);
    return operation;
  }

  template <DirectAccessEndpoint E, Reducible T>
  void all_reduce(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    start(at, x, op, tag, where).finish();
  }
};

}  // namespace chorale
