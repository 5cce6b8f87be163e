// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace chorale::detail {

/// All variables, brought together from the shards of all replicas, in every process. Every process calls it.
///
/// memory    holds them
Variables whole_variables(auto& replicas, std::vector<float>& memory) {
  auto& live       = replicas.live();
  auto& copies     = replicas.copies();
  auto const mine  = live.hold();
  auto const plan  = replicas.plan();
  auto const first = live.local_replica(0).id();
  memory.resize(plan.values());
  auto const all = Variables{memory, plan.variables};
  live.run(
      [&](auto& replica, auto& copy) {
        auto const& units = copy.units();
        replica.gather_shards(units.cut(), units.values(), replica.id() == 0 ? all.body() : Span<float>{});
        if (live.is_all_local()) return;
        auto own = std::vector<float>(replica.id() == first ? 0 : memory.size());
        replica.broadcast(replica.id() == first ? Span<float>{memory} : Span<float>{own});
      },
      copies);
  return all;
}

/// Replaces all variables of every replica here. See Trainer::set_variables().
template <class S> void set_variables(auto& replicas, Span<float const> values) {
  auto const plan = replicas.plan();
  CHORALE_EXPECTS(!replicas.whole().is_split(),
                  "set_variables gives each of " + std::to_string(replicas.live().num_replicas()) +
                      " replicas the same numbers, but each has only a part or a stage of the variables. Use "
                      "load(file)");
  CHORALE_EXPECTS(values.size() == plan.values(),
                  "this model has " + std::to_string(plan.values()) + " numbers, got " + std::to_string(values.size()));
  for (auto& copy : replicas.copies()) {
    if constexpr (shards_variables<S>) copy.units().take(values.subspan(plan.body().begin, plan.body().size()));
    else std::ranges::copy(values, copy.net.variables().values.begin());
  }
}

}  // namespace chorale::detail
