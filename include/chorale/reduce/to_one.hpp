// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <cstddef>

namespace chorale {

/// All-reduce through rank 0: it gathers, combines and sends the result to all. The simplest algorithm, as a baseline.
///
///   P = 4      rank 0   rank 1   rank 2   rank 3
///   step 0       <--------*                        ┐
///   step 1       <-----------------*               │ rank 0 combines in the order of ranks; no rank waits to send
///   step 2       <--------------------------*      ┘
///   step 3       *-------->                        ┐
///   step 4       *----------------->               │ all at once
///   step 5       *-------------------------->      ┘
///
/// cost    2 messages that must follow one another. Rank 0 sends (P-1) · S bytes and receives as many, the others send
///         S and receive S: rank 0's link bounds the whole
/// order   every element is combined in the order of ranks 0, 1, .., P-1: the bits of a serial loop over the ranks
/// source  tf.distribute.ReductionToOneDevice
struct ReduceToOne : ScheduledAllReduce<ReduceToOne> {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = ranks > 1 ? 2 : 0, .bytes = static_cast<std::size_t>(ranks - 1) * bytes};
  }

  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return 2 * (ranks - 1); }

  static constexpr Step step(Rank rank, int ranks, int s) {
    auto const gathers = s < ranks - 1;
    auto const peer    = gathers ? s + 1 : s - ranks + 2;
    auto const all     = Chunks::one(0);
    if (rank == peer) return gathers ? Step{.to = 0, .send = all} : Step{.from = 0, .receive = all};
    if (rank != 0) return {};
    return gathers ? Step{.from = peer, .receive = all, .fold = Fold::mine_first} : Step{.to = peer, .send = all};
  }
};

}  // namespace chorale
