// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/model/unit_sizes.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/strategy/runtime/bucket_ends.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace chorale {

namespace detail {

/// Bytes of messages that R keeps to add them up, of all gradients.
///
/// scatters   true: so that each rank has the sums of its shard
/// clips      true: with the squares of a global norm
template <class R>
constexpr std::size_t received_by(PlanView const& plan, placement::Shard at, bool scatters, bool clips) {
  auto sum = std::size_t{0};
  if (at.world == 1) return sum;
  if constexpr (!ShardedReduce<R> && !LossyReduce<R>) {
    auto const first = scatters ? plan::header : 0, last = plan.elements - (scatters ? plan::trailer : 0);
    auto begin = std::size_t{0};
    for (auto const end : clipped(bucket_ends<R>(plan.variables, plan.bucket_ends, plan.elements), first, last)) {
      if (scatters) {
        if constexpr (HasHalves<R>) {
          if constexpr (Schedule<typename R::scatter>) {
            auto ends = std::vector<std::size_t>{};
            for (int rank = 0; rank < at.world; ++rank)
              ends.push_back(std::clamp(placement::Shard{rank, at.world}.of(plan.body().size()).end, begin, end) -
                             begin);
            sum += scratch_bytes<typename R::scatter>(at.rank, at.world, end - begin, sizeof(float), ends);
          }
        }
      } else if constexpr (Schedule<R>) {
        sum += scratch_bytes<R>(at.rank, at.world, end - begin, sizeof(float));
      }
      begin = end;
    }
  }
  if (scatters) {  // header and trailer; the shard report
    using Exact = RecursiveDoublingAllReduce;
    if constexpr (!ShardedReduce<R>)
      sum += scratch_bytes<Exact>(at.rank, at.world, plan::header + plan::trailer, sizeof(float));
    auto const each = clips ? 1 + SquareTree::most_nodes(SquareTree::lines(plan.body().size())) : std::size_t{1};
    sum += scratch_bytes<Exact>(at.rank, at.world, each * static_cast<std::size_t>(at.world), sizeof(double));
  }
  return sum;
}

/// Bytes of messages that R keeps to add up the gradients of units: messages for two buffers and the kept unit.
template <class R>
constexpr std::size_t received_in_units(PlanView const& plan, UnitsView const& units, placement::Shard at, bool clips) {
  using Exact = RecursiveDoublingAllReduce;
  auto sum    = std::size_t{0};
  if (at.world == 1) return sum;
  if constexpr (HasHalves<R>) {
    if constexpr (Schedule<typename R::scatter>)
      for (std::size_t place = 0; place < 3; ++place) {
        auto most = std::size_t{0};
        for (std::size_t u = 0; u < units.count(); ++u)
          if ((u == units.turns ? 2 : u % 2) == place) {
            auto const size = size_of_unit(plan, units, u);
            most            = std::max(most, scratch_bytes<typename R::scatter>(at.rank, at.world, size, sizeof(float),
                                                                                unit_ends(size, at.world)));
          }
        sum += most;
      }
    sum += scratch_bytes<Exact>(at.rank, at.world, plan::header + plan::trailer, sizeof(float));
  }
  auto const each = clips ? report_of_units(plan, units, at.world) : std::size_t{1};
  return sum + scratch_bytes<Exact>(at.rank, at.world, each * static_cast<std::size_t>(at.world), sizeof(double));
}

/// Memory of a copy whose units take turns. See UnitMemory.
///
/// splits   it has the variables of its shard alone
constexpr ReplicaMemory memory_in_units(ReplicaMemory whole, PlanView const& plan, UnitsView const& units, int slots,
                                        placement::Shard at, bool splits) {
  auto own = std::size_t{0}, kept = own, largest = own;  // elements
  for (std::size_t u = 0; u < units.count(); ++u) {
    auto const size = size_of_unit(plan, units, u);
    own += at.of(size).size();
    if (u == units.turns) kept = size;
    else largest = std::max(largest, size);
  }
  auto const buffers = kept + std::min<std::size_t>(units.turns, 2) * largest;
  auto const further = whole.gradients - plan.bytes_per_step();  // of other threads
  whole.variables    = sizeof(float) * (splits ? own : plan.values());
  whole.gradients    = sizeof(float) * (2 * plan::header + own + buffers) + further;
  whole.slots        = sizeof(float) * static_cast<std::size_t>(slots) * own;
  whole.gathered     = sizeof(float) * (splits ? buffers : 0);
  return whole;
}

}  // namespace detail

/// Memory of one rank under strategy S, of what a replica with all variables takes: shards in place of the whole where S
/// keeps shards, and the memory of messages until R has added them up. A strategy that places variables otherwise has
///
///   static constexpr ReplicaMemory memory(ReplicaMemory whole, PlanView plan, int slots, placement::Shard at)
///
/// slots   of the optimizer
/// at      the rank, of so many
/// clips   true: the global norm of gradients is clipped
/// units   of the network, if S keeps shards of gradients: two take turns in buffers of gradients, and of gathered layers
/// keeps   received counts the messages of schedules. Reduces without one, and Reproducible, whose messages are as many
///         as a step has, add nothing to it
template <class S, class R>
constexpr ReplicaMemory memory_under(ReplicaMemory whole, PlanView const& plan, int slots, placement::Shard at,
                                     bool clips = false, [[maybe_unused]] UnitsView const& units = {}) {
  if constexpr (requires { S::memory(whole, plan, slots, at); }) {
    return S::memory(whole, plan, slots, at);
  } else {
    if constexpr (shares_variables<S>)  // the first replica has the only ones
      if (at.rank != 0) whole.variables = whole.slots = 0;
    if constexpr (shards_gradients<S>) {
      whole          = detail::memory_in_units(whole, plan, units, slots, at, shards_variables<S>);
      whole.received = detail::received_in_units<R>(plan, units, at, clips);
      return whole;
    }
    if constexpr (shards_optimizer<S>)
      whole.slots = static_cast<std::size_t>(slots) * sizeof(float) * at.of(plan.body().size()).size();
    if constexpr (ReducesEveryStep<S>) whole.received = detail::received_by<R>(plan, at, shards_optimizer<S>, clips);
    return whole;
  }
}

/// Memory of one rank that trains a model, in bytes, before any of it is allocated.
///
///   memory_plan<ShardedStrategy<Zero::one>>(model, RingAllReduce{}, device, 32, {rank, world})
///
/// rows        of the rank's share of a batch
/// positions   of each ragged input, in all rows; 0 if the model has none
template <class S, class M, class R, class D>
ReplicaMemory memory_plan(M const& model, R const&, D const& device, std::size_t rows, placement::Shard at = {},
                          std::size_t positions = 0) {
  if constexpr (requires { S::template memory_plan<R>(model, device, rows, at.rank); }) {
    return S::template memory_plan<R>(model, device, rows, at.rank);
  } else {
    constexpr auto slots = std::remove_cvref_t<decltype(model.optimizer)>::slots;
    auto units           = UnitsView{};
    if constexpr (requires { M::template units_on<D>(); } && shards_gradients<S>) units = M::template units_on<D>();
    return memory_under<S, R>(memory_of(model, rows, device, positions), PlanView{model.plan}, slots, at,
                              model.optimizer.global_clipnorm > 0, units);
  }
}

}  // namespace chorale
