// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace chorale {

/// Memory of one rank whose units take turns, of what a replica with all variables takes: what UnitMemory has, and the
/// messages of R until they are added up.
///
/// at       the rank, of so many
/// slots    of the optimizer
/// splits   true: of the variables, too, it has a shard
/// keeps    without the numbers that tell parts of a clipped norm
template <class R>
constexpr ReplicaMemory memory_in_units(ReplicaMemory whole, PlanView const& plan, UnitsView const& units,
                                        placement::Shard at, int slots, bool splits) {
  auto sizes = std::vector<std::size_t>(units.count());
  for (std::size_t v = 0; v < plan.variables.size(); ++v)
    sizes[static_cast<std::size_t>(units.of_variable[v])] += plan::aligned(plan.variables[v].size);
  auto held = std::size_t{0}, largest = held;
  auto received = std::array<std::size_t, 3>{};                            // of the two buffers, and the kept unit
  for (std::size_t u = 0; u < sizes.size(); ++u) {
    held += at.of(sizes[u]).size();
    if (u < units.turns) largest = std::max(largest, sizes[u]);
    if constexpr (!ShardedReduce<R> && HasHalves<R>)
      if constexpr (Schedule<typename R::scatter>) {
        auto ends = std::vector<std::size_t>{};
        for (int rank = 0; rank < at.world; ++rank) ends.push_back(placement::Shard{rank, at.world}.of(sizes[u]).end);
        auto& here = received[u == units.turns ? 2 : u % 2];
        here = std::max(here, scratch_bytes<typename R::scatter>(at.rank, at.world, sizes[u], sizeof(float), ends));
      }
  }
  auto const in_use = (units.keeps ? sizes[units.turns] : 0) + std::min<std::size_t>(units.turns, 2) * largest;
  whole.variables   = sizeof(float) * (splits ? held : plan.values());
  whole.gathered    = sizeof(float) * (splits ? in_use : 0);
  whole.gradients   = sizeof(float) * (plan::header + held + plan::trailer + in_use);
  whole.slots       = sizeof(float) * static_cast<std::size_t>(slots) * held;
  whole.received    = received[0] + received[1] + received[2];
  if (at.world > 1) {
    using Exact = RecursiveDoublingAllReduce;
    if constexpr (!ShardedReduce<R>)
      whole.received += scratch_bytes<Exact>(at.rank, at.world, plan::header + plan::trailer, sizeof(float));
    whole.received += scratch_bytes<Exact>(at.rank, at.world, static_cast<std::size_t>(at.world), sizeof(double));
  }
  return whole;
}

}  // namespace chorale
