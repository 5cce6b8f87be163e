// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <bit>
#include <cstddef>

namespace chorale {
namespace detail {

/// Any number of ranks as a core of a power of two, and extra ranks: each first sends x to a neighbour in the core, and
/// receives the result from it last.
///
///   P = 6      0 <- 1   2 <- 3   4   5       the core: 0, 2, 4, 5, numbered 0 to 3
struct Core {
  constexpr explicit Core(int ranks)
      : size{static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))}, extra{ranks - size} {}

  constexpr int doublings() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(size))) - 1; }
  constexpr bool has(Rank rank) const { return rank >= 2 * extra || rank % 2 == 0; }
  constexpr int number(Rank rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }
  constexpr Rank rank(int number) const { return number < extra ? 2 * number : number + extra; }

  /// The message between an extra rank and its neighbour: towards the core before all others, out of it after them.
  constexpr Step outside(Rank rank, Chunks all, bool inwards) const {
    if (rank >= 2 * extra) return {};
    auto const peer = has(rank) ? rank + 1 : rank - 1;
    if (has(rank) != inwards) return {.to = peer, .send = all};
    return {.from = peer, .receive = all, .fold = inwards ? Fold::mine_first : Fold::keep};
  }

  int size, extra;
};

}  // namespace detail

/// All-reduce by exchange of all of x with ranks at distance 1, 2, 4, ..: few steps, for small x.
///
///   P = 4      rank 0   rank 1   rank 2   rank 3
///   step 0       <-------->        <-------->
///   step 1       <------------------>
///                         <------------------>
///
/// cost    log2 P messages that must follow one another, and S bytes with each; where P is not a power of two, one
///         more before or after them, and both when more than half of the core has an extra rank
/// order   ((0 + 1) + (2 + 3)) + .. on all ranks, in the order of ranks; the sum of two NaNs is the same NaN on all
/// source  Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005
struct RecursiveDoublingAllReduce : ScheduledAllReduce<RecursiveDoublingAllReduce> {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    auto const core = detail::Core{ranks};
    auto const sent = core.doublings() + (core.extra > 0 ? 1 : 0);
    auto const early =
        core.extra > 0 && 2 * core.extra <= core.size;  // no chain of all doublings joins two extra ranks
    return {.steps = steps(ranks) - (early ? 1 : 0), .bytes = static_cast<std::size_t>(sent) * bytes};
  }

  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) {
    auto const core = detail::Core{ranks};
    return core.doublings() + (core.extra > 0 ? 2 : 0);
  }

  static constexpr Step step(Rank rank, int ranks, int s) {
    auto const core = detail::Core{ranks};
    auto const all  = Chunks::one(0);
    if (core.extra > 0 && (s == 0 || s == steps(ranks) - 1)) return core.outside(rank, all, s == 0);
    if (!core.has(rank)) return {};
    auto const distance = 1 << (core.extra > 0 ? s - 1 : s);
    auto const mine     = core.number(rank);
    auto const peer     = core.rank(mine ^ distance);
    auto const fold     = (mine & distance) == 0 ? Fold::mine_first : Fold::theirs_first;
    return {.to = peer, .send = all, .from = peer, .receive = all, .fold = fold};
  }
};

}  // namespace chorale
