// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <algorithm>
#include <cstddef>

namespace chorale {

/// All-reduce whose messages halve in size while it combines, then double while it gathers.
///
///   P = 4 and x cut into 4 chunks; the table shows which chunks each rank sends, and to which rank
///            rank 0      rank 1      rank 2      rank 3
///   step 0   2 3 -> 2    2 3 -> 3    0 1 -> 0    0 1 -> 1    ┐ reduce-scatter: combine with what arrives
///   step 1   1   -> 1    0   -> 0    3   -> 3    2   -> 2    ┘ now rank r holds chunk r in full
///   step 2   0   -> 1    1   -> 0    2   -> 3    3   -> 2    ┐ all-gather: keep what arrives
///   step 3   0 1 -> 2    0 1 -> 3    2 3 -> 0    2 3 -> 1    ┘
///
/// cost    2 log2 P steps; 2(P-1)/P · S bytes sent per rank, as around a ring. Where P is not a power of two, Q is
///         the next one below: 2 log2 Q + 2 steps, and 2(Q-1)/Q · S + S bytes
/// order   ranks r and r + Q/2, then the sums of ranks Q/4 apart, and so on; the lower rank first
/// source  Rabenseifner, ICCS 2004
struct HalvingDoublingAllReduce : ScheduledAllReduce<HalvingDoublingAllReduce> {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    auto const core = detail::Core{ranks};
    auto const Q    = static_cast<std::size_t>(core.size);
    return {.steps = steps(ranks), .bytes = 2 * (Q - 1) * bytes / Q + (core.extra > 0 ? bytes : 0)};
  }

  static constexpr int chunks(int ranks) { return detail::Core{ranks}.size; }
  static constexpr int widest(int ranks) {
    auto const core = detail::Core{ranks};
    return core.extra > 0 ? core.size : std::max(1, core.size / 2);
  }
  static constexpr int steps(int ranks) {
    auto const core = detail::Core{ranks};
    return 2 * core.doublings() + (core.extra > 0 ? 2 : 0);
  }

  static constexpr Step step(Rank rank, int ranks, int s) {
    auto const core = detail::Core{ranks};
    if (core.extra > 0 && (s == 0 || s == steps(ranks) - 1)) return core.outside(rank, {0, core.size}, s == 0);
    if (!core.has(rank)) return {};
    auto const turn     = core.extra > 0 ? s - 1 : s;
    bool const halves   = turn < core.doublings();
    auto const distance = halves ? core.size >> (turn + 1) : 1 << (turn - core.doublings());
    auto const mine = core.number(rank), theirs = mine ^ distance;
    auto const peer = core.rank(theirs);
    if (!halves) return {.to = peer, .send = held(mine, distance), .from = peer, .receive = held(theirs, distance)};
    auto const fold = mine < theirs ? Fold::mine_first : Fold::theirs_first;
    return {.to = peer, .send = held(theirs, distance), .from = peer, .receive = held(mine, distance), .fold = fold};
  }

 private:
  /// The chunks that member `number` of the core keeps (while halving) or sends (while doubling) at that distance.
  static constexpr Chunks held(int number, int distance) {
    auto const begin = number & ~(distance - 1);
    return {begin, begin + distance};
  }
};

}  // namespace chorale
