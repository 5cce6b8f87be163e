// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <chorale/cluster/cluster.hpp>
#include <chorale/cluster/environment.hpp>
#include <chorale/cluster/launch_info.hpp>
#include <chorale/cluster/resolvers/clouds.hpp>
#include <chorale/cluster/resolvers/hosts.hpp>
#include <chorale/cluster/resolvers/rank_launchers.hpp>
#include <chorale/cluster/resolvers/slurm.hpp>
#include <chorale/cluster/resolvers/tf_config.hpp>
#include <chorale/cluster/resolvers/tpu.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {
namespace resolve {

/// A launcher that was found, and the function that asks it for addresses.
struct Found {
  LaunchInfo launch;
  void (*place)(Environment const&, LaunchInfo&);
};

/// Returns the launchers that started this process; the first one is believed.
template <Resolver... R> std::vector<Found> found(Environment const& env) {
  auto all = std::vector<Found>{};
  (..., [&] {
    if (auto launch = R::launch(env)) all.push_back({std::move(*launch), R::place});
  }());
  return all;
}

[[noreturn]] inline void disagree(std::string const& one, std::string const& other, std::string const& what) {
  throw BadArgument{one + " and " + other + " disagree: " + what + ".",
                    "unset the variables of the one that did not start this program."};
}

inline std::string rank_of(LaunchInfo const& launch) {
  return "rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.world);
}

/// Throws unless two launchers can both be right: the other gives the same rank and world, started the processes of the
/// believed one, started its launcher on each host, or started only a shell.
inline void expect_same(LaunchInfo const& believed, LaunchInfo const& other) {
  auto const same = believed.rank == other.rank && believed.world == other.world;
  if (same || other.world == 1 || other.world == believed.agents || believed.has_hosts_of(other)) return;
  disagree(believed.by, other.by, rank_of(believed) + ", and " + rank_of(other));
}

/// Throws if a launcher contradicts a written cluster. With servers or evaluators the launcher's order may differ, but
/// not its number of processes; a service that counts hosts may have several tasks on each.
inline void expect_same(Cluster const& written, LaunchInfo const& launch) {
  auto const all     = static_cast<int>(written.tasks().size());
  auto const members = written.workers() + written.servers();
  if (launch.world == 1 || launch.is_per_host) return;
  auto const same         = launch.world == all || launch.world == members;
  auto const only_workers = written.workers() == all && written.is_worker();
  if (same && (!only_workers || written.rank() == launch.rank)) return;
  disagree(written.found_in(), launch.by,
           written.task().text() + " of " + std::to_string(all) + " tasks, and " + rank_of(launch));
}

inline void expect_same(ClusterParts const& own, ClusterParts const& other) {
  if (own.me == other.me && own.tasks.size() == other.tasks.size()) return;
  disagree(own.found_in, other.found_in,
           own.me.text() + " of " + std::to_string(own.tasks.size()) + " tasks, and " + other.me.text() + " of " +
               std::to_string(other.tasks.size()));
}

/// Returns the believed launcher with its addresses, or with the addresses of another one that gives the same rank.
inline LaunchInfo placed(Environment const& env, std::vector<Found> const& all) {
  auto launch = all.front().launch;
  all.front().place(env, launch);
  for (auto const& [other, place] : all) {
    if (!launch.addresses.empty() || other.rank != launch.rank || other.world != launch.world) continue;
    auto again = other;
    place(env, again);
    launch.addresses = again.addresses;
  }
  return launch;
}

inline ClusterParts with_job(Environment const& env, ClusterParts parts) {
  if (env.has("CHORALE_JOB")) parts.job = env.get("CHORALE_JOB");
  if (auto const again = env.number("CHORALE_INCARNATION", 0, 2'147'483'647))
    parts.incarnation = static_cast<std::uint32_t>(*again);
  return parts;
}

/// How Cluster::from_env() finds the cluster.
struct FromEnv {
  static Cluster cluster(Environment const& env) {
    namespace r = resolve;
    auto const launchers =
        r::found<r::Torchrun, r::OpenMpi, r::Mpich, r::Slurm, r::KubeflowTrainer, r::SageMaker, r::TPUClusterResolver>(
            env);
    auto const rank    = launchers.empty() ? -1 : launchers.front().launch.rank;
    auto written       = std::vector<ClusterParts>{};  // the first one is believed
    auto const consult = [&](std::optional<ClusterParts> parts) {
      if (parts) written.push_back(std::move(*parts));
    };
    consult(r::own_variables(env, rank));
    consult(r::listed_hosts(env, rank));
    consult(r::tf_config(env.get("TF_CONFIG")));
    consult(r::tf_config(env.get("CLUSTER_SPEC"), "CLUSTER_SPEC"));
    for (auto const& other : launchers) r::expect_same(launchers.front().launch, other.launch);
    for (auto const& other : written) r::expect_same(written.front(), other);
    if (!written.empty()) {
      auto cluster = Cluster{r::with_job(env, written.front())};
      for (auto const& other : launchers) r::expect_same(cluster, other.launch);
      return cluster;
    }
    if (!launchers.empty()) return Cluster{r::with_job(env, r::parts_of(r::placed(env, launchers)))};
    r::Torchrun::expect_whole(env);
    r::OpenMpi::expect_whole(env);
    r::Mpich::expect_whole(env);
    r::expect_hosts(env);
    auto cluster   = Cluster{r::with_job(env, {.tasks = {{}}, .found_in = "local"})};
    cluster.local_ = true;
    return cluster;
  }
  static Cluster cluster() { return cluster(Environment::of_process()); }
};

}  // namespace resolve

}  // namespace chorale
