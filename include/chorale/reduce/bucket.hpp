// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/backoff.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// The buckets, and their bytes, that were reduced while the caller still computed, since begin().
struct Overlap {
  std::size_t buckets = 0;
  std::size_t bytes   = 0;

  friend constexpr bool operator==(Overlap const&, Overlap const&) = default;
};

namespace detail {

struct NoOperation {};

/// True if a large bucket may have small chunks, even empty ones.
template <class O> concept has_uneven_chunks = requires { requires O::has_uneven_chunks; };

/// True if operations run one after another in the order in which they are started, as NCCL's do. That order must not
/// depend on which operations are complete, because this differs between ranks.
template <class O> concept keeps_order = requires { requires O::keeps_order; };

/// True if the operation leaves out a part of x, and adds it to the next x. See TopK.
template <class O>
concept keeps_residual = requires(O operation, Span<float> memory) { operation.keep_residual_in(memory); };

template <class R, class E> struct operation_of {
  using type = NoOperation;
};
template <class R, class E> requires ResumableReduce<R, E> struct operation_of<R, E> {
  using type = decltype(std::declval<R const&>().start(std::declval<E&>(), Span<float>{}, Op::sum, Tag{}));
};

}  // namespace detail

/// Algorithms that say where gradients are cut into buckets. See Bucketed.
template <class R> concept CutsBuckets = requires { typename R::cut; };

template <class R, class C> struct Bucketed;  // reduce/bucketed.hpp

/// A Reduce without a choice of buckets.
template <class R> struct WithoutCut {
  using type = R;
};
/// Bucketed<R, C> without C.
template <class R, class C> struct WithoutCut<Bucketed<R, C>> {
  using type = R;
};

/// Returns the ends of the buckets with a small first one, which is sent alone, so that the network has work while the
/// second layer still computes. The first bucket is cut where a layer ends, if at least `least` elements are before the
/// cut: fewer cost a message and hide nothing.
///
/// ends    the ends of the plan's buckets, ascending
/// layers  where layers end, in any order
constexpr std::vector<std::size_t> with_small_first(Span<std::size_t const> ends, Span<std::size_t const> layers,
                                                    std::size_t least = (std::size_t{32} << 10) / sizeof(float)) {
  auto all = std::vector<std::size_t>(ends.begin(), ends.end());
  auto cut = all.empty() ? 0 : all.front();
  for (auto const end : layers)
    if (end >= least) cut = std::min(cut, end);
  if (!all.empty() && cut < all.front()) all.insert(all.begin(), cut);
  return all;
}

/// Reduces one buffer in buckets that are sent while the rest of it is still being computed.
///
///   buffer   |  bucket 0  |     bucket 1     |  bucket 2  |      final from the front to the back
///            0         ends[0]            ends[1]      ends[2]
///   ready(ends[0])   bucket 0 starts         ready(ends[1])   bucket 1 starts, 0 moves on         finish()   all
///
/// An algorithm that is not a ResumableReduce reduces each bucket when it is final, and blocks meanwhile.
///
/// keeps   the endpoint and the buffer outlive it; after a PeerLost it cannot be used again. Every rank has the same
///         buckets and the same steps; ready() may be called at any pace
/// cost    the algorithm's, per bucket. After the first step nothing is allocated; at most 15 buckets are under way at
///         once, with more than 4 ranks fewer, the others start when those are complete: a rank that is late has at
///         most 63 messages to take from each other rank, as many as every transport keeps. No limit where the
///         transport itself orders the operations
/// order   the algorithm's, within each bucket: different buckets may give different bits
template <class R, Endpoint E> class BucketedReducer {
 public:
  /// ends    the end of each bucket in elements, ascending; the last is the size of the buffer
  /// tags    [first, first + 65536) are used in turn, so that consecutive steps use different tags
  BucketedReducer(R reduce, E& at, Span<std::size_t const> ends, Span<float> buffer, Op op = Op::sum,
                  Tag first = Tag{1U << 16})
      : reduce_{std::move(reduce)}, at_{&at}, ends_(ends.begin(), ends.end()), buffer_{buffer}, op_{op}, first_{first},
        most_{most_of(at.size())} {
    auto before = std::size_t{0};
    for (auto const end : ends_) {
      CHORALE_EXPECTS(end > before,
                      "a bucket ends at " + std::to_string(end) + ", the one before it at " + std::to_string(before));
      before = end;
    }
    CHORALE_EXPECTS(before == buffer.size(), "the last bucket ends at " + std::to_string(before) + ", the buffer at " +
                                                 std::to_string(buffer.size()));
    if constexpr (resumes)
      for (std::size_t i = 0; i < ends_.size(); ++i) operations_.push_back(idle_operation(reduce_, at));
    if constexpr (has_residual) {
      residual_.resize(buffer.size());
      for (std::size_t i = 0; i < ends_.size(); ++i) operations_[i].keep_residual_in(bucket(i, residual_));
    }
    complete_.resize(ends_.size());
    begin();
  }

  /// Starts a step: no element is final.
  void begin() {
    CHORALE_EXPECTS(oldest_ == started_, "begin() in the middle of a step: " + std::to_string(started_ - oldest_) +
                                             " buckets are under way; finish() comes before it");
    ready_ = started_ = oldest_ = 0;
    overlap_                    = {};
    complete_.assign(ends_.size(), 0);
  }

  /// Elements [0, upto) are final: starts the buckets that they complete, and advances those under way.
  void ready(std::size_t upto) {
    CHORALE_EXPECTS(upto <= buffer_.size() && upto >= ready_, "ready(" + std::to_string(upto) + ") after ready(" +
                                                                  std::to_string(ready_) + ") in a buffer of " +
                                                                  std::to_string(buffer_.size()) + " elements");
    ready_ = upto;
    overlap_.buckets += advance(overlap_.bytes);
  }

  /// Returns when every bucket is reduced.
  void finish() {
    ready_        = buffer_.size();
    auto late     = std::size_t{0};  // bytes that no computing hid
    auto patience = Backoff{200};    // ranks may share cores
    while (oldest_ < ends_.size()) {
      if (advance(late) != 0) patience = Backoff{200};
      else if (patience.asleep()) block();
      else patience.pause();
    }
  }

  /// The values that the algorithm left out so far, one for each element of the buffer; empty if it leaves nothing out.
  /// They are state of this rank that a checkpoint must contain besides the optimizer's. They may be read, or replaced
  /// by saved values, between finish() and begin(); they do not depend on how the buffer is cut into buckets.
  Span<float> residual() { return residual_; }
  static constexpr std::string_view residual_name = "residual";  // in a checkpoint

  /// The buckets of this step that were complete before finish(): the measure of how much communication was hidden.
  Overlap overlap() const { return overlap_; }

 private:
  using Operation = typename detail::operation_of<R, E>::type;

  static constexpr bool resumes      = ResumableReduce<R, E>;
  static constexpr bool has_residual = detail::keeps_residual<Operation>;

  /// Buckets that may be under way. Of each, a rank that is late may have to take 4 large messages; or P-1 small ones,
  /// which leave without it. If chunks are uneven, each of 4 lanes has small ones.
  static std::size_t most_of(int ranks) {
    if constexpr (detail::keeps_order<Operation>) return std::numeric_limits<std::size_t>::max();
    constexpr int messages = 63, lanes = detail::has_uneven_chunks<Operation> ? 4 : 1;
    return static_cast<std::size_t>(std::max(1, messages / std::max(4, lanes * (ranks - 1))));
  }

  Span<float> bucket(std::size_t i, Span<float> of) const {
    auto const begin = i == 0 ? 0 : ends_[i - 1];
    return of.subspan(begin, ends_[i] - begin);
  }
  Span<float> bucket(std::size_t i) const { return bucket(i, buffer_); }

  /// Starts and polls buckets. Returns how many became complete, and adds their bytes to `bytes`.
  std::size_t advance(std::size_t& bytes) {
    auto completed = std::size_t{0};
    for (bool again = true; again;) {
      again = false;
      for (; started_ < ends_.size() && ends_[started_] <= ready_ && started_ - oldest_ < most_; ++started_) start();
      for (auto i = oldest_; i < started_; ++i) {
        if (complete_[i] != 0 || !poll(i)) continue;
        complete_[i] = 1;
        bytes += bucket(i).size_bytes();
        ++completed;
      }
      for (; oldest_ < started_ && complete_[oldest_] != 0; ++oldest_) again = true;
    }
    return completed;
  }

  void start() {
    auto const tag = Tag{static_cast<std::uint32_t>(first_) + (turn_++ & 0xFFFFU)};
    if constexpr (resumes) operations_[started_].restart(*at_, bucket(started_), op_, tag);
    else reduce_.all_reduce(*at_, bucket(started_), op_);
  }

  bool poll(std::size_t i) {
    if constexpr (resumes) return operations_[i].poll();
    else return true;
  }

  // Waits for the first bucket that is not complete. Ranks that are ahead have done their part of it, and ranks that
  // are late reach it first, so no two wait for each other; and unlike polling many, a wait for one times out.
  void block() {
    if constexpr (resumes) operations_[oldest_].finish();
  }

  R reduce_;
  E* at_;
  std::vector<std::size_t> ends_;
  Span<float> buffer_;
  Op op_;
  Tag first_;
  std::size_t most_;                                  // buckets under way
  std::uint32_t turn_ = 0;                            // buckets started since construction
  std::size_t ready_ = 0, started_ = 0, oldest_ = 0;  // elements; buckets; the first not complete
  Overlap overlap_;
  std::vector<Operation> operations_;
  std::vector<float> residual_;  // of all buckets
  std::vector<char> complete_;
};

}  // namespace chorale
