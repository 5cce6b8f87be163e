// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <cstddef>

namespace chorale {

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
/// cost    2(P-1) steps; 2(P-1)/P · S bytes sent per rank, the least that any all-reduce can send
/// order   chunk c is combined in the order of ranks c, c+1, .., c+P-1: the same bits in every run with P ranks
/// source  Patarasuk & Yuan, JPDC 69(2), 2009
struct RingAllReduce : ScheduledAllReduce<RingAllReduce> {
  using scatter = RingReduceScatter;  // its halves, with chunk r complete on rank r
  using gather  = RingAllGather;

  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = 2 * (ranks - 1),
            .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes / static_cast<std::size_t>(ranks)};
  }

  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return 2 * (ranks - 1); }

  static constexpr Step step(Rank rank, int ranks, int s) {
    auto const chunk = [&](int i) { return Chunks::one((i + 2 * ranks) % ranks); };
    return {.to      = (rank + 1) % ranks,
            .send    = chunk(rank - s),
            .from    = (rank + ranks - 1) % ranks,
            .receive = chunk(rank - s - 1),
            .fold    = s < ranks - 1 ? Fold::theirs_first : Fold::keep};
  }
};

}  // namespace chorale
