// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/half.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/pairwise.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <concepts>
#include <cstddef>

namespace chorale {

/// All-reduce of floats that are sent as 16 bits and added as floats: half the bytes.
///
///   Compressed<bf16>{}                 the range of float, 8 bits of precision
///   Compressed<fp16, RingAllReduce>{}  11 bits of precision; values beyond 65504 become infinite
///
/// With the default R, which sends no partial sums, every addend is rounded once, and so is the result. With
/// RingAllReduce and the trees, each partial sum is rounded again where it is sent.
///
/// keeps   x is of type float; all ranks end with the same bits
/// cost    R's for half the bytes, exactly
template <class W, Schedule R = PairwiseAllReduce> struct Compressed {
  static_assert(std::same_as<W, bf16> || std::same_as<W, fp16>, "chorale: Compressed takes bf16 or fp16");

  using exact = PairwiseAllReduce;  // for counts and losses: nothing may be rounded

  static constexpr Cost cost(int ranks, std::size_t bytes) { return R::cost(ranks, bytes / 2); }

  template <Endpoint E>
  ScheduleExecution<R, E, float, W> start(E& at, Span<float> x, Op op, Tag tag = {},
                                          CallSite where = CallSite::here()) const {
    auto operation = ScheduleExecution<R, E, float, W>{};
    operation.restart(at, x, op, tag, where);
    return operation;
  }

  template <Endpoint E>
  void all_reduce(E& at, Span<float> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) const {
    auto operation = ScheduleExecution<R, E, float, W>{};
    operation.restart(at, x, op, tag, where);
    operation.finish();
  }
};

}  // namespace chorale
