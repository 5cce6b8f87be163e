// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/half.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// One element of a gradient, and its index, as they are sent: in 8 bytes, or 6 where values have 16 bits.
template <class W> class Picked {
 public:
  Picked() = default;
  Picked(std::uint32_t at, float v)
      : low_{static_cast<std::uint16_t>(at)}, high_{static_cast<std::uint16_t>(at >> 16)}, value_{v} {}

  std::uint32_t index() const { return low_ | std::uint32_t{high_} << 16; }
  float value() const { return static_cast<float>(value_); }

 private:
  std::uint16_t low_ = 0, high_ = 0;
  W value_{};
};
static_assert(sizeof(Picked<float>) == 8 && sizeof(Picked<bf16>) == 6);

/// The number of elements that are sent out of n, rounded up.
constexpr std::size_t picked_of(std::size_t n, int per_mille) {
  return std::min(n, (n * static_cast<std::size_t>(per_mille) + 999) / 1000);
}

/// An all-reduce of the largest elements that is under way. See TopK.
template <Endpoint E, int PerMille, class W = float> class TopKOperation {
 public:
  void restart(E& at, Span<float> x, Op op, Tag tag, CallSite where = {}) {
    CHORALE_EXPECTS(op == Op::sum, "TopK adds up; it cannot form the " + std::string{name(op)});
    CHORALE_EXPECTS(x.size() <= std::size_t{UINT32_MAX},
                    "TopK numbers elements with 32 bits, got " + std::to_string(x.size()));
    CHORALE_EXPECTS(given_.empty() || given_.size() == x.size(), "TopK got a gradient of " + std::to_string(x.size()) +
                                                                     " elements and memory for a residual of " +
                                                                     std::to_string(given_.size()));
    x_ = x;
    if (given_.empty() && own_.size() != x.size()) own_.assign(x.size(), 0.0F);
    auto const k = picked_of(x.size(), PerMille), P = static_cast<std::size_t>(at.size());
    all_.resize(k * P);
    ends_.resize(P);
    for (std::size_t r = 0; r < P; ++r) ends_[r] = (r + 1) * k;
    pick(Span<Picked<W>>{all_}.subspan(static_cast<std::size_t>(at.rank()) * k, k));
    gathering_.restart(
        at,
        {.collective = Collective::all_reduce, .x = Span<Picked<W>>{all_}, .tag = tag, .where = where, .ends = ends_});
    complete_ = false;
  }

  bool poll() {
    if (!complete_ && gathering_.poll()) add_up();
    return complete_;
  }

  void finish() {
    if (complete_) return;
    gathering_.finish();
    add_up();
  }

  /// The values that were not sent so far, one for each element of x: the state of this operation, to be saved with the
  /// optimizer's. They may be written while the operation is complete.
  Span<float> residual() { return given_.empty() ? Span<float>{own_} : given_; }

  /// Keeps the residual from now on in memory of the caller, with as many elements as x will have. Its contents are the
  /// residual of earlier steps.
  void keep_residual_in(Span<float> memory) { given_ = memory; }

 private:
  void pick(Span<Picked<W>> mine) {
    auto const rest = residual();
    for (std::size_t i = 0; i < x_.size(); ++i) rest[i] += x_[i];
    order_.resize(x_.size());
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    auto const larger = [&](std::uint32_t a, std::uint32_t b) {
      auto const left = size_of(rest[a]), right = size_of(rest[b]);
      return left > right || (left == right && a < b);  // ties by index: the same in every run
    };
    auto const end = order_.begin() + static_cast<std::ptrdiff_t>(mine.size());
    std::nth_element(order_.begin(), mine.size() < order_.size() ? end : order_.end(), order_.end(), larger);
    std::sort(order_.begin(), end);
    for (std::size_t k = 0; k < mine.size(); ++k) {
      auto& left = rest[order_[k]];
      mine[k]    = {order_[k], left};
      left       = std::isfinite(mine[k].value()) ? left - mine[k].value() : 0.0F;  // what rounding has left
    }
  }

  static float size_of(float v) { return std::isnan(v) ? INFINITY : std::abs(v); }  // a NaN is sent first

  void add_up() {
    std::fill(x_.begin(), x_.end(), 0.0F);
    for (auto const& one : all_) {  // in the order of ranks
      if (one.index() >= x_.size()) refuse(one);
      x_[one.index()] += one.value();
    }
    complete_ = true;
  }
  [[noreturn]] void refuse(Picked<W> const& one) const {
    auto const rank = static_cast<std::size_t>(&one - all_.data()) / (all_.size() / ends_.size());
    throw Disagreement{Fault::collective_mismatch,
                       sentence("rank {} sends element {} of {} under TopK.", rank, one.index(), x_.size()),
                       "the same model on every rank, and a look at the memory of that host."};
  }

  Span<float> x_;
  bool complete_ = true;
  Span<float> given_;  // the caller's residual; empty: own_
  std::vector<float> own_;
  std::vector<std::uint32_t> order_;
  std::vector<Picked<W>> all_;  // (P, k)
  std::vector<std::size_t> ends_;
  ScheduleExecution<RingAllGather, E, Picked<W>> gathering_;
};

/// Sums the largest elements only, with error feedback: values that are not sent are added to the next gradient.
///
///   each rank    residual += x; send the largest PerMille / 1000 of it by size; remove the sent values from it
///   all ranks    x = the sum of the sent values
///
///   TopK<10>{}         the largest hundredth, as floats
///   TopK<10, bf16>{}   the same, each value in 16 bits; what rounding takes away stays in the residual
///
/// keeps   over all steps, sums sent + residuals = the sums of the gradients, up to rounding. The residual is the
///         operation's state: an operation belongs to one buffer
/// cost    P-1 steps; a rank sends 8 (P-1) k bytes for k elements, or 6 (P-1) k where values have 16 bits: less than a ring
///         below 1000 / (2 P) per mille
/// order   ranks 0, 1, .., P-1: the same bits on all ranks
/// throws  BadArgument for an operation other than sum; Disagreement when a rank sends an element that x does not have
/// source  Aji & Heafield, EMNLP 2017; Stich, Cordonnier & Jaggi, NeurIPS 2018
template <int PerMille = 10, class W = float> struct TopK {
  static_assert(std::same_as<W, float> || std::same_as<W, bf16> || std::same_as<W, fp16>,
                "chorale: TopK<PerMille, W> sends values as W: float, bf16 or fp16");
  static_assert(PerMille >= 1 && PerMille <= 1000, "chorale: TopK<PerMille> sends 1 to 1000 of a thousand elements");
  using exact = PairwiseAllReduce;  // for counts and losses: nothing may be left out

  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {
        .steps = ranks - 1,
        .bytes = static_cast<std::size_t>(ranks - 1) * picked_of(bytes / sizeof(float), PerMille) * sizeof(Picked<W>)};
  }

  template <Endpoint E>
  TopKOperation<E, PerMille, W> start(E& at, Span<float> x, Op op, Tag tag = {},
                                      CallSite where = CallSite::here()) const {
    auto operation = TopKOperation<E, PerMille, W>{};
    operation.restart(at, x, op, tag, where);
    return operation;
  }

  /// Sums x once: values that are not sent are lost with the operation.
  template <Endpoint E>
  void all_reduce(E& at, Span<float> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    start(at, x, op, tag, where).finish();
  }
};

}  // namespace chorale
