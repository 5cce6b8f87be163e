// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/nn/engine/kept_values.hpp>
#include <chorale/nn/engine/sequential_trace.hpp>
#include <chorale/nn/engine/stages.hpp>
#include <chorale/nn/engine/units.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/tensor/plan.hpp>

#include <cstddef>

namespace chorale {

/// Memory of one rank that trains a network under strategy S with optimizer O, as a constant: what types say.
///
///   constexpr auto memory = memory_plan<Net, MirroredStrategy<>, optim::Adam>(world, rows);
///   static_assert(memory.peak() <= 8'000'000'000);
///
/// world    ranks; rank: the first one has the largest shard
/// rows     of the rank's share of a batch
/// keeps    exact, except for activations: those are what forward leaves for backward. Workspaces of kernels, gradients by
///          values, gradients of a device's further threads, and ragged values come on top when the program runs; the form
///          above, of a model and a device, has them all
template <class Net, class S, class O, class R = RingAllReduce>
constexpr ReplicaMemory memory_plan(int world, std::size_t rows, Rank rank = 0, bool clips = false) {
  using Traced        = typename nn::detail::TracedNetwork<Net>::type;
  constexpr auto each = nn::graph::kept_per_row<Traced, typename S::device>();
  auto const plan     = PlanView{nn::graph::plan_for<Traced>()};
  auto const slots    = static_cast<std::size_t>(O::slots);
  auto const whole    = ReplicaMemory{.parameters  = plan.parameters,
                                      .variables   = plan.values() * sizeof(float),
                                      .gradients   = plan.bytes_per_step(),
                                      .slots       = slots * plan.values() * sizeof(float),
                                      .rows        = rows,
                                      .activations = each * rows,
                                      .has_tables  = plan.table_elements != 0};
  if constexpr (shards_gradients<S>)
    return memory_under<S, R>(whole, plan, O::slots, {rank, world}, clips,
                              nn::graph::UnitsOf<Traced, typename S::device>::view);
  else return memory_under<S, R>(whole, plan, O::slots, {rank, world}, clips);
}

/// Refuses, when it is compiled, a network of which a replica takes more than `budget` bytes.
///
///   static_assert(within_memory<80'000'000'000, 8, 32, Net, ShardedStrategy<Zero::one>, optim::Adam>());
///
/// world, rows   as above
template <std::size_t budget, int world, std::size_t rows, class Net, class S, class O, class R = RingAllReduce>
constexpr bool within_memory() {
  constexpr std::size_t bytes = memory_plan<Net, S, O, R>(world, rows).peak();
  static_assert(bytes <= budget,
                "chorale: a replica of this network takes more than its memory budget; "
                "memory_plan<Net, S, O>(world, rows) says what takes how much. Use ShardedStrategy, "
                "nn::Recompute, an optimizer with fewer slots, or fewer rows. See docs/42-strategies.md");
  return true;
}

}  // namespace chorale
