// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace chorale {

/// Reduce-scatter around a ring: every rank ends with its own chunk complete.
///
///   P = 3; which chunk each rank sends         rank 0   rank 1   rank 2
///                                   step 0        2        0        1
///                                   step 1        1        2        0       now rank r holds chunk r in full
///
/// cost    P-1 steps; (P-1)/P · S bytes sent per rank, the least possible
/// order   chunk c is combined in the order of ranks c+1, c+2, .., c
struct RingReduceScatter {
  static constexpr Collective collective = Collective::reduce_scatter;
  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks - 1; }
  static constexpr Step step(Rank rank, int ranks, int s) {
    return {.to      = (rank + 1) % ranks,
            .send    = Chunks::one((rank - s - 1 + ranks) % ranks),
            .from    = (rank + ranks - 1) % ranks,
            .receive = Chunks::one((rank - s - 2 + 2 * ranks) % ranks),
            .fold    = Fold::theirs_first};
  }
};

/// All-gather around a ring: every rank sends the chunk that it received last, and its own first.
///
/// cost    P-1 steps; (P-1)/P · S bytes sent per rank, the least possible
struct RingAllGather {
  static constexpr Collective collective = Collective::all_gather;
  static constexpr int chunks(int ranks) { return ranks; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return ranks - 1; }
  static constexpr Step step(Rank rank, int ranks, int s) {
    return {.to      = (rank + 1) % ranks,
            .send    = Chunks::one((rank - s + ranks) % ranks),
            .from    = (rank + ranks - 1) % ranks,
            .receive = Chunks::one((rank - s - 1 + ranks) % ranks)};
  }
};

/// Combines the x of all ranks; each rank gets its share(x.size(), rank, P) of the result, in place.
///
/// returns that share of x; the rest of x is scratch afterwards
template <Endpoint E, Reducible T>
Span<T> reduce_scatter(E& at, Span<T> x, Op op, Tag tag = {}, CallSite where = CallSite::here()) {
  auto operation = ScheduleExecution<RingReduceScatter, E, T>{};
  operation.restart(at, {.collective = Collective::reduce_scatter, .x = x, .op = op, .tag = tag, .where = where});
  operation.finish();
  auto const mine = share(x.size(), at.rank(), at.size());
  return x.subspan(mine.begin, mine.size());
}

/// Concatenates the elements of all ranks, in the order of ranks, on every rank.
///
/// counts  elements of each rank, the same list on all ranks
/// mine    counts[rank] elements; may be its place in `all`, but not another part of it
/// all     the sum of counts
/// throws  BadArgument when sizes and counts differ; PeerLost
template <Endpoint E, class T> requires std::is_trivially_copyable_v<T>
void all_gather(E& at, Span<std::type_identity_t<T> const> mine, Span<T> all, Span<std::size_t const> counts,
                Tag tag = {}, CallSite where = CallSite::here()) {
  auto const P = static_cast<std::size_t>(at.size()), me = static_cast<std::size_t>(at.rank());
  CHORALE_EXPECTS(counts.size() == P, "all_gather got counts for " + std::to_string(counts.size()) +
                                          " ranks in a group of " + std::to_string(P));
  auto ends = std::vector<std::size_t>{};
  for (auto const count : counts) ends.push_back((ends.empty() ? 0 : ends.back()) + count);
  CHORALE_EXPECTS(mine.size() == counts[me], "rank " + std::to_string(me) + " brings " + std::to_string(mine.size()) +
                                                 " elements to all_gather, its count is " + std::to_string(counts[me]));
  CHORALE_EXPECTS(all.size() == ends.back(),
                  "all_gather of " + std::to_string(ends.back()) + " elements into " + std::to_string(all.size()));
  auto const place = all.subspan(ends[me] - counts[me], counts[me]);
  if (!mine.empty() && mine.data() != place.data()) std::copy(mine.begin(), mine.end(), place.begin());
  auto operation = ScheduleExecution<RingAllGather, E, T>{};
  operation.restart(at, {.collective = Collective::all_gather, .x = all, .tag = tag, .where = where, .ends = ends});
  operation.finish();
}

/// Concatenates equally many elements of every rank, in the order of ranks, on every rank.
template <Endpoint E, class T> requires std::is_trivially_copyable_v<T>
void all_gather(E& at, Span<std::type_identity_t<T> const> mine, Span<T> all, Tag tag = {},
                CallSite where = CallSite::here()) {
  auto const counts = std::vector<std::size_t>(static_cast<std::size_t>(at.size()), mine.size());
  all_gather<E, T>(at, mine, all, counts, tag, where);
}

}  // namespace chorale
