// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/weights.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/model_replicas.hpp>

#include <cstddef>
#include <filesystem>
#include <string>

namespace chorale::detail {

/// Writes the variables from what this process has, if it is the chief. See Trainer::save().
///
/// throws  BadArgument when a replica of another process has a part of a variable
template <class M, class S, class R, class T>
void save_from_here(ModelReplicas<M, S, R, T> const& replicas, std::filesystem::path const& file,
                    WeightMap const& names) {
  auto const& live   = replicas.live();
  auto const& copies = replicas.copies();
  if (!live.is_chief()) return;
  auto whole = replicas.whole();
  if (whole.is_split()) {
    CHORALE_EXPECTS(live.is_all_local(), "variables are split over " + std::to_string(live.num_replicas()) +
                                             " replicas, of which this process has " + std::to_string(copies.size()) +
                                             ": call save() in all processes, or use FitOptions::checkpoints");
    whole.make_room();
    for (std::size_t i = 0; i < copies.size(); ++i)
      if constexpr (StrategyTraits<S>::has_stages) whole.put(copies[i].net.variables());
      else whole.put(copies[i].net.variables().values, {}, static_cast<Rank>(i), "");
  }
  save_weights(file, whole.variables(copies[0]), names);
}

/// Writes the variables from the parts that all replicas have. Every process calls it.
template <class M, class S, class R, class T>
void save_from_all(ModelReplicas<M, S, R, T>& replicas, std::filesystem::path const& file, WeightMap const& names) {
  using instance = typename ModelReplicas<M, S, R, T>::instance;
  auto whole     = replicas.whole();
  auto& live     = replicas.live();
  if (live.is_chief()) whole.make_room();
  if constexpr (shards_variables<S>)
    live.run([&](auto& replica, instance& copy) { whole.gather_runs(replica, copy); }, replicas.copies());
  else if (whole.is_split())
    live.run([&](auto& replica, instance& copy) { whole.gather(replica, copy); }, replicas.copies());
  if (live.is_chief()) save_weights(file, whole.variables(replicas.copies()[0]), names);
}

/// Brings every replica the variables that the chief reads. See Trainer::load().
///
/// read    called on the chief: read(variables), laid out as on one device
template <class M, class S, class R, class T, class Read>
void load_into_replicas(ModelReplicas<M, S, R, T>& replicas, Read const& read) {
  using instance = typename ModelReplicas<M, S, R, T>::instance;
  replicas.live().run(
      [&](auto& replica, instance& copy) {
        auto whole = replicas.whole();
        if (replica.id() == 0) {
          whole.make_room();
          read(whole.variables(copy));
        }
        if constexpr (shares_variables<S>) replica.barrier();
        else whole.scatter(replica, copy, false);
      },
      replicas.copies());
}

/// Reads the chief's file into all servers, and from there into every worker. See Trainer::load().
template <class M, class S, class R, class T, class Read>
void load_into_servers(ModelReplicas<M, S, R, T>& replicas, std::string const& from, Read&& read) {
  using instance = typename ModelReplicas<M, S, R, T>::instance;
  auto& live     = replicas.live();
  auto& copies   = replicas.copies();
  if (live.only_serves()) return;
  auto loaded = PerReplica<Totals>(copies.size());
  live.run(
      [&](auto& replica, instance& copy, Totals& totals) {
        if (replica.id() != 0) return;
        read(copy.net.variables());
        replica.assign(copy.net.variables());
        totals.sums[0] = 1;
      },
      copies, loaded);
  if (live.reduce(loaded).sums[0] != 1)  // waits for all workers
    throw PeerLost{0, "the chief could not load " + from + " into the servers."};
  live.run([](auto& replica, instance& copy) { replica.pull(copy.net.variables()); }, copies);
}

}  // namespace chorale::detail
