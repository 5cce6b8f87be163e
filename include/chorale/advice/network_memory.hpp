// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/engine/sequential_trace.hpp>
#include <chorale/nn/engine/stages.hpp>
#include <chorale/nn/engine/units.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/tensor/plan.hpp>

#include <array>
#include <cstddef>

namespace chorale::nn::graph {

/// Bytes that forward keeps for backward, for one row: all values that backward reads, except the inputs and the values
/// that nn::Recompute computes again. Known to the compiler.
///
/// keeps   at most what an executor allocates for a row: on top come workspaces, gradients by values, and ragged values
template <class Net, class D> constexpr std::size_t kept_per_row() {
  using Low               = Lowered<Net, D>;
  constexpr auto const& g = Low::calls;
  constexpr auto N        = Low::counts.values;
  auto lasts = std::array<bool, N>{}, kept = lasts;
  auto root = std::array<std::size_t, N>{};  // the value whose memory a renamed one is
  for (std::size_t v = 0; v < N; ++v) {
    root[v]  = v;
    lasts[v] = g.values[v].call < 0 || g.calls[at(g.values[v].call)].recompute < 0;
  }
  for (auto const v : g.outputs) lasts[at(v)] = true;
  for (auto const& call : g.calls)
    for (int i = 0; i < call.ins; ++i) {
      auto const v      = at(g.ins[at(call.first_in + i)]);
      auto const& value = g.values[v];
      if (value.call >= 0 && g.calls[at(value.call)].recompute != call.recompute) lasts[v] = true;
      if (call.ops->renames) root[at(call.first_out)] = root[v];
    }
  for (auto const& call : g.calls) {
    if (call.ops->passes || (call.uses == 0 && !Low::wants_dx(call))) continue;  // backward has nothing to do
    for (int i = 0; i < call.outs && call.ops->keeps_y; ++i)
      if (auto const v = at(call.first_out + i); lasts[v]) kept[root[v]] = true;
    for (int i = 0; i < call.ins && call.ops->keeps_x; ++i)
      if (auto const v = at(g.ins[at(call.first_in + i)]); lasts[v]) kept[root[v]] = true;
  }
  auto sum = std::size_t{0};
  for (std::size_t v = 0; v < N; ++v)
    if (kept[v] && g.values[v].call >= 0 && g.values[v].ragged < 0) sum += g.values[v].bytes;
  return sum;
}

}  // namespace chorale::nn::graph

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

/// Refuses, at compile time, a network if a replica takes more than `budget` bytes.
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
