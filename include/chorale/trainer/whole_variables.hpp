// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/weights.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace chorale::detail {

/// Memory for all variables in one process: those of a replica or, where replicas have shards of them, `whole`.
template <class S>
Variables room_for_variables(auto& replicas, auto& copy, [[maybe_unused]] std::vector<float>& whole) {
  if constexpr (shards_variables<S>) {
    whole.resize(replicas.plan().values());
    return {whole, replicas.plan().variables};
  } else {
    return copy.net.variables();
  }
}

/// Brings the shards of all replicas to rank 0, in a step.
template <class S>
void gather_variables(auto& replica, auto& copy, Span<float> body) {
  if constexpr (shards_variables<S>)
    replica.gather_shards(copy.units().cut(), copy.units().values(), replica.id() == 0 ? body : Span<float>{});
}

/// All variables: those of the first replica here or, where replicas have shards, brought together in `whole`. Every
/// process calls it then.
///
/// everywhere   false: only the chief needs them, and gets them
template <class S>
Variables whole_variables(auto& replicas, std::vector<float>& whole, bool everywhere = true) {
  auto& live = replicas.live();
  if (shards_variables<S> && !everywhere && !live.is_chief()) {
    live.run([](auto& replica, auto& copy) { gather_variables<S>(replica, copy, {}); }, replicas.copies());
    return {};
  }
  auto const all = room_for_variables<S>(replicas, replicas.copies()[0], whole);
  if constexpr (shards_variables<S>) {
    live.run([&](auto& replica, auto& copy) { gather_variables<S>(replica, copy, all.body()); }, replicas.copies());
    if (everywhere && !live.is_all_local())
      live.run([&, first = live.local_replica(0).id()](auto& replica, auto&) {
        auto own = std::vector<float>(replica.id() == first ? 0 : whole.size());
        replica.broadcast(replica.id() == first ? Span<float>{whole} : Span<float>{own});
      }, replicas.copies());
  }
  return all;
}

/// Replaces the variables of every replica by those of rank 0, which are in room_for_variables(). Every replica calls it,
/// in a step.
template <class S>
void spread_variables(auto& replica, auto& copy, [[maybe_unused]] Variables const& all) {
  if constexpr (shares_variables<S>) {
    replica.barrier();
  } else if constexpr (shards_variables<S>) {
    replica.scatter_shards(copy.units().cut(), replica.id() == 0 ? all.body() : Span<float>{}, copy.units().values());
    copy.units().changed();
  } else {
    replica.broadcast(copy.net.variables().values);
  }
}

/// Writes all variables as one file. See Trainer::save(). Every process calls it.
template <class S>
void save_shards(auto& replicas, std::filesystem::path const& file, WeightMap const& names) {
  auto whole     = std::vector<float>{};
  auto const all = whole_variables<S>(replicas, whole, false);
  if (replicas.live().is_chief()) save_weights(file, all, names);
}

/// Reads the chief's file into every replica of the job. See Trainer::load().
template <class S>
void load_everywhere(auto& replicas, std::filesystem::path const& file, WeightMap const& names) {
  replicas.live().run([&](auto& replica, auto& copy) {
    auto whole = std::vector<float>{};
    auto all   = Variables{};
    if (replica.id() == 0) load_weights(file, all = room_for_variables<S>(replicas, copy, whole), names);
    spread_variables<S>(replica, copy, all);
  }, replicas.copies());
}

/// Replaces all variables of every replica here. See Trainer::set_variables().
template <class S>
void set_everywhere(auto& replicas, Span<float const> values) {
  auto const plan = replicas.plan();
  CHORALE_EXPECTS(values.size() == plan.values(), "this model has " + std::to_string(plan.values()) + " numbers, got " +
                                                      std::to_string(values.size()));
  for (auto& copy : replicas.copies()) {
    if constexpr (shards_variables<S>) copy.units().take(values.subspan(plan.body().begin, plan.body().size()));
    else std::ranges::copy(values, copy.net.variables().values.begin());
  }
}

}  // namespace chorale::detail
