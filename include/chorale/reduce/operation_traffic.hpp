// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/reduce/shard_tree.hpp>
#include <chorale/reduce/step_operations.hpp>
#include <chorale/transport/collective.hpp>

#include <concepts>
#include <cstddef>

namespace chorale::detail {

/// What a rank sends by schedule S.
template <Schedule S> Sent traffic_by(StepOperation const& one, Rank rank) {
  return chorale::traffic<S>(rank, one.ranks, one.elements, size_of(one.element), one.ends);
}

/// What a rank moves where ranks read each other's memory: it exposes, and it leaves.
inline Sent traffic_in_place(StepOperation const& one, Rank rank) {
  auto const i = static_cast<std::size_t>(rank);
  auto const mine =
      one.ends.empty() ? share(one.elements, rank, one.ranks).size() : one.ends[i] - (i == 0 ? 0 : one.ends[i - 1]);
  auto const moved = static_cast<std::size_t>(one.ranks - 1) * mine * size_of(one.element);
  return {2, one.kind == Collective::all_reduce ? 2 * moved : moved};
}

/// What a rank sends of sums at the nodes of a tree over L shards, by the messages of S.
template <int L, Schedule S> Sent traffic_of_shards(StepOperation const& one, Rank rank) {
  auto const shards = ShardTraffic<S>{one.ranks, L};
  auto const size   = [&](int c) {
    auto const i = static_cast<std::size_t>(c);
    return one.ends.empty() ? share(one.elements, c, S::chunks(one.ranks)).size()
                              : one.ends[i] - (i == 0 ? 0 : one.ends[i - 1]);
  };
  auto sent = Sent{};
  for (int s = 0; s < S::steps(one.ranks); ++s) {
    auto const step = S::step(rank, one.ranks, s);
    if (step.to == nobody) continue;
    ++sent.messages;
    for (int c = step.send.begin; c < step.send.end; ++c)
      sent.bytes += shard_tree::nodes_of(shards.held(s, rank, c), L).size() * size(c) * size_of(one.element);
  }
  return sent;
}

using TrafficFunction = Sent (*)(StepOperation const&, Rank);

/// What a rank sends in an all-reduce by R; null if only R knows.
template <class R> constexpr TrafficFunction all_reduce_traffic() {
  if constexpr (LossyReduce<R>) return nullptr;
  else if constexpr (Schedule<R>) return traffic_by<R>;
  else if constexpr (std::derived_from<R, DirectAllReduce>) return traffic_in_place;
  else return nullptr;
}

}  // namespace chorale::detail
