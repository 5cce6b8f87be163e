// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/text.hpp>

#include <chorale/cluster/environment.hpp>
#include <chorale/cluster/launch_info.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Launchers that give a process its rank, but not the addresses of the others.
namespace chorale::resolve {

/// Hash that is equal on all ranks and machines: a job's ports begin at 20000 plus this modulo 20000.
inline std::uint32_t hash_of(std::string_view text) { return Fnv1a<std::uint32_t>{}.add(text).value(); }

/// Reason why ranks on several hosts have no addresses, as a sentence.
inline std::string several_hosts(LaunchInfo const& launch) {
  return std::to_string(launch.world) + " ranks, " +
         (launch.local_size < 0 ? "it does not say how many" : std::to_string(launch.local_size)) +
         " on this host, and no address of the others: for several hosts it takes the host of rank 0 in CHORALE_MASTER, "
         "where ranks meet over TcpTransport, or all addresses in CHORALE_CLUSTER.";
}

/// Returns the host in a variable; IPv6 with or without brackets.
inline std::string host_in(Environment const& env, char const* variable, std::string const& by) {
  auto host = std::string{env.get(variable)};
  if (host.find(':') != host.npos && !host.starts_with('[')) host = "[" + host + "]";
  return HostPort::parse(host + ":1", by + ": " + variable + ", with a port").host;
}

/// Refuses variables that give a rank or a number of ranks, but not both.
///
/// by      the launcher that sets them: "torchrun"
/// needs   a variable without which both are useless; may be empty
/// throws  BadArgument when one of the two is not a valid number, or is set without the rest
inline void expect_whole(Environment const& env, std::string const& by, std::string_view rank, std::string_view world,
                         std::string_view needs = {}) {
  env.number(world, 1, Cluster::most);
  env.number(rank, 0, Cluster::most);
  if (!env.has(rank) && !env.has(world)) return;
  auto here = std::string{}, missing = std::string{};
  for (auto const name : {rank, world, needs}) {
    if (name.empty()) continue;
    auto& list = env.has(name) ? here : missing;
    list += (list.empty() ? "" : " and ") + std::string{name} + (env.has(name) ? "=" + printable(env.get(name)) : "");
  }
  if (missing.empty()) return;
  throw BadArgument{
      by + ": " + here + (here.find(" and ") == here.npos ? " is" : " are") + " set without " + missing + ".",
      "set all of them, or unset what another job left behind."};
}

/// Resolver for torchrun: RANK, WORLD_SIZE and MASTER_ADDR.
///
/// MASTER_PORT is torchrun's, which listens there itself: ranks listen from the next port on.
struct Torchrun {
  static std::optional<LaunchInfo> launch(Environment const& env) {
    if (!env.has("RANK") || !env.has("WORLD_SIZE") || !env.has("MASTER_ADDR")) return std::nullopt;
    auto launch       = LaunchInfo{.by = "torchrun"};
    launch.world      = *env.number("WORLD_SIZE", 1, Cluster::most);
    launch.rank       = *env.number("RANK", 0, Cluster::most);
    launch.local_rank = env.number("LOCAL_RANK", 0, Cluster::most).value_or(-1);
    launch.local_size = env.number("LOCAL_WORLD_SIZE", 1, Cluster::most).value_or(-1);
    launch.agents     = env.number("GROUP_WORLD_SIZE", 1, Cluster::most).value_or(0);
    launch.job        = "torchrun " + std::string{env.get("TORCHELASTIC_RUN_ID")} + " at " +
                 std::string{env.get("MASTER_ADDR")} + ":" + std::string{env.get("MASTER_PORT")};
    auto const again   = env.number("TORCHELASTIC_RESTART_COUNT", 0, 1'000'000'000).value_or(0);
    launch.incarnation = static_cast<std::uint32_t>(again);
    return checked(launch);
  }

  static void expect_whole(Environment const& env) {
    resolve::expect_whole(env, "torchrun", "RANK", "WORLD_SIZE", "MASTER_ADDR");
  }

  static void place(Environment const& env, LaunchInfo& launch) {
    launch.no_addresses = several_hosts(launch);
    auto const own      = env.number("CHORALE_PORT", 1, 65'535);
    auto const master   = env.number("MASTER_PORT", 1, 65'535);
    auto const host     = host_in(env, env.has("CHORALE_MASTER") ? "CHORALE_MASTER" : "MASTER_ADDR", launch.by);
    if (own) return place_from(launch, host, *own, "CHORALE_PORT");
    if (master) return place_from(launch, host, *master + 1, "MASTER_PORT and 1");
    launch.no_addresses = "neither MASTER_PORT nor CHORALE_PORT is set.";
  }
};

/// Sets addresses from CHORALE_PORT on, or from a port made of the job's name; on several hosts, at CHORALE_MASTER.
inline void place_mpi(Environment const& env, LaunchInfo& launch) {
  launch.no_addresses = several_hosts(launch);
  auto const known    = env.has("CHORALE_MASTER");
  if (!launch.is_one_host() && !known) return;
  auto const own = env.number("CHORALE_PORT", 1, 65'535);
  auto const job = env.has("CHORALE_JOB") ? std::string{env.get("CHORALE_JOB")} : launch.job;
  place_from(launch, known ? host_in(env, "CHORALE_MASTER", launch.by) : "127.0.0.1",
             own ? *own : static_cast<int>(20'000 + hash_of(job) % 20'000),
             own ? "CHORALE_PORT" : "made of the job's name");
}

/// Number of nodes that Slurm gave to mpirun, which starts one agent on each.
inline int agents_under_slurm(Environment const& env) {
  return env.number({"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, 1, Cluster::most).value_or(0);
}

/// Resolver for Open MPI: OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE.
struct OpenMpi {
  static std::optional<LaunchInfo> launch(Environment const& env) {
    if (!env.has("OMPI_COMM_WORLD_RANK") || !env.has("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
    auto launch       = LaunchInfo{.by = "Open MPI"};
    launch.world      = *env.number("OMPI_COMM_WORLD_SIZE", 1, Cluster::most);
    launch.rank       = *env.number("OMPI_COMM_WORLD_RANK", 0, Cluster::most);
    launch.local_rank = env.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, Cluster::most).value_or(-1);
    launch.local_size = env.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, Cluster::most).value_or(-1);
    launch.agents     = agents_under_slurm(env);
    launch.job        = "Open MPI " + std::string{env.get("PMIX_NAMESPACE")};
    return checked(launch);
  }

  static void expect_whole(Environment const& env) {
    resolve::expect_whole(env, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  }

  static void place(Environment const& env, LaunchInfo& launch) { place_mpi(env, launch); }
};

/// Resolver for MPICH: PMI_RANK and PMI_SIZE.
///
/// keeps   MPICH has no name for a job: two jobs on one host at a time need a CHORALE_PORT each, or a CHORALE_JOB
struct Mpich {
  static std::optional<LaunchInfo> launch(Environment const& env) {
    if (!env.has("PMI_RANK") || !env.has("PMI_SIZE")) return std::nullopt;
    auto launch       = LaunchInfo{.by = "MPICH"};
    launch.world      = *env.number("PMI_SIZE", 1, Cluster::most);
    launch.rank       = *env.number("PMI_RANK", 0, Cluster::most);
    launch.local_rank = env.number("MPI_LOCALRANKID", 0, Cluster::most).value_or(-1);
    launch.local_size = env.number("MPI_LOCALNRANKS", 1, Cluster::most).value_or(-1);
    launch.agents     = agents_under_slurm(env);
    launch.job        = "MPICH " + std::string{env.get("PMI_JOBID")};
    return checked(launch);
  }

  static void expect_whole(Environment const& env) { resolve::expect_whole(env, "MPICH", "PMI_RANK", "PMI_SIZE"); }

  static void place(Environment const& env, LaunchInfo& launch) { place_mpi(env, launch); }
};

static_assert(Resolver<Torchrun> && Resolver<OpenMpi> && Resolver<Mpich>);

}  // namespace chorale::resolve
