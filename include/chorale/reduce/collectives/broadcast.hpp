// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/transport/transport.hpp>

#include <bit>
#include <cstddef>
#include <string>
#include <type_traits>

namespace chorale {
namespace detail {

/// A tree in which the parent of rank r is r without its lowest bit. Step s joins ranks that are 2^s apart.
///
///   P = 6      0 <- 1   2 <- 3   4 <- 5     step 0
///              0 <----- 2                   step 1       (4 has no peer)
///              0 <--------------- 4         step 2
struct BinomialTree {
  static constexpr int steps(int ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1U)); }

  /// A step towards rank 0, which combines in the order of ranks.
  static constexpr Step up(Rank rank, int ranks, int s) {
    auto const distance = 1 << s;
    auto const all      = Chunks::one(0);
    if (rank % (2 * distance) == distance) return {.to = rank - distance, .send = all};
    if (rank % (2 * distance) != 0 || rank + distance >= ranks) return {};
    return {.from = rank + distance, .receive = all, .fold = Fold::mine_first};
  }

  /// A step away from rank 0: the steps of up() in reverse.
  static constexpr Step down(Rank rank, int ranks, int s) {
    auto const turned = up(rank, ranks, steps(ranks) - 1 - s);
    if (turned.to != nobody) return {.from = turned.to, .receive = turned.send};
    return {.to = turned.from, .send = turned.receive};
  }
};

template <Endpoint E> void expect_root(E& at, Rank root) {
  CHORALE_EXPECTS(root >= 0 && root < at.size(),
                  "no rank " + std::to_string(root) + " to be the root in a group of " + std::to_string(at.size()));
}

}  // namespace detail

/// Reduce from the leaves of a binomial tree to its root.
///
/// cost    ceil(log2 P) messages that must follow one another; every rank but the root sends S bytes
struct BinomialReduce {
  static constexpr Collective collective = Collective::reduce;
  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return detail::BinomialTree::steps(ranks); }
  static constexpr Step step(Rank rank, int ranks, int s) { return detail::BinomialTree::up(rank, ranks, s); }
};

/// Broadcast from the root of a binomial tree to its leaves.
///
/// cost    ceil(log2 P) messages that must follow one another; the root sends S bytes in each
struct BinomialBroadcast {
  static constexpr Collective collective = Collective::broadcast;
  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return detail::BinomialTree::steps(ranks); }
  static constexpr Step step(Rank rank, int ranks, int s) { return detail::BinomialTree::down(rank, ranks, s); }
};

/// Combines the x of all ranks into the root's x. The x of the other ranks is scratch afterwards.
///
/// order   ((r + (r+1)) + ((r+2) + (r+3))) + ..: a balanced tree in the order of ranks, from root r on
/// throws  BadArgument when the root is not a rank; PeerLost
template <Endpoint E, Reducible T>
void reduce(E& at, Span<T> x, Op op, Rank root = 0, Tag tag = {}, CallSite where = CallSite::here()) {
  detail::expect_root(at, root);
  auto operation = ScheduleExecution<BinomialReduce, E, T>{};
  operation.restart(at, {.collective = Collective::reduce, .x = x, .op = op, .tag = tag, .where = where, .root = root});
  operation.finish();
}

/// Copies the root's x to all ranks.
///
/// cost    the messages of BinomialBroadcast, and an empty one from every rank but the root, towards it: no rank sends
///         data before all ranks that get them from it have called the same, and so no rank returns with others' values
/// throws  BadArgument when the root is not a rank; PeerLost; Disagreement
template <Endpoint E, class T> requires std::is_trivially_copyable_v<T>
void broadcast(E& at, Span<T> x, Rank root = 0, Tag tag = {}, CallSite where = CallSite::here()) {
  detail::expect_root(at, root);
  auto call = CollectiveCall<T>{.collective = Collective::broadcast, .x = x, .tag = tag, .where = where, .root = root};
  announce(at, call.operation());
  call.announced = true;
  auto ready     = ScheduleExecution<BinomialReduce, E, std::byte>{};
  ready.restart(at, {.collective = Collective::broadcast, .tag = tag, .root = root, .announced = true});
  ready.finish();
  auto operation = ScheduleExecution<BinomialBroadcast, E, T>{};
  operation.restart(at, call);
  operation.finish();
}

}  // namespace chorale
