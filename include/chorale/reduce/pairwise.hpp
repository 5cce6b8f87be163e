// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <cstddef>

namespace chorale {

/// All-reduce by owners: every rank sends each chunk to the rank that owns it, which combines them and sends the result
/// to all. No partial sum is sent.
///
///   P = 4 and x cut into P chunks; the table shows which chunk each rank sends, and to which rank
///            rank 0    rank 1    rank 2    rank 3
///   step 0   1 -> 1    2 -> 2    3 -> 3    0 -> 0    ┐
///   step 1   2 -> 2    3 -> 3    0 -> 0    1 -> 1    │ to the owner, which combines
///   step 2   3 -> 3    0 -> 0    1 -> 1    2 -> 2    ┘ now rank r holds chunk r in full
///   step 3   0 -> 1    1 -> 2    2 -> 3    3 -> 0    ┐
///   step 4   0 -> 2    1 -> 3    2 -> 0    3 -> 1    │ from the owner
///   step 5   0 -> 3    1 -> 0    2 -> 1    3 -> 2    ┘
///
/// cost    2 steps, because no message waits for another of its half; 2(P-1)/P · S bytes sent per rank, as around a
///         ring, over a link to every rank
/// order   chunk c is combined in the order of ranks c, c-1, .., c-P+1
/// source  Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005: reduce-scatter by pairwise exchange
struct PairwiseAllReduce : ScheduledAllReduce<PairwiseAllReduce> {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    return {.steps = ranks > 1 ? 2 : 0,
            .bytes = 2 * static_cast<std::size_t>(ranks - 1) * bytes / static_cast<std::size_t>(ranks)};
  }

  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return 2 * (ranks - 1); }

  static constexpr Step step(Rank rank, int ranks, int s) {
    bool const gathers  = s >= ranks - 1;
    auto const distance = gathers ? s - (ranks - 1) + 1 : s + 1;
    auto const to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
    return {.to      = to,
            .send    = Chunks::one(gathers ? rank : to),
            .from    = from,
            .receive = Chunks::one(gathers ? from : rank),
            .fold    = gathers ? Fold::keep : Fold::mine_first};
  }
};

}  // namespace chorale
