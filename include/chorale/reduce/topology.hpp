// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/broadcast.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/transport/topology.hpp>

namespace chorale {

/// True if rank a sends to rank b or rank b to rank a in schedule S.
template <Schedule S> constexpr bool uses_link(Rank a, Rank b, int ranks) {
  for (int s = 0; s < S::steps(ranks); ++s)
    if (S::step(a, ranks, s).to == b || S::step(b, ranks, s).to == a) return true;
  return false;
}

/// The connections that these schedules use, with rank 0 as the root where they have one.
///
///   TcpTransport{.topology = topology_of<RingAllReduce, BinomialBroadcast>()}
template <Schedule... S> constexpr Topology topology_of() {
  return {[](Rank a, Rank b, int ranks) { return (uses_link<S>(a, b, ranks) || ...); }};
}

/// The connections that a Trainer uses whose strategy mirrors the variables and reduces by these schedules; it also
/// broadcasts from rank 0, gathers, and has barriers.
///
/// cost    with RingAllReduce, each of 16 ranks has 5 connections for data, not 15; each of 64 ranks has 7, not 63
template <Schedule... S> constexpr Topology topology_for_training() {
  return topology_of<S..., BinomialBroadcast, RingAllGather, RecursiveDoublingAllReduce>();
}

}  // namespace chorale
