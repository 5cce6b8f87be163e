// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <chorale/cluster/environment.hpp>
#include <chorale/cluster/launch_info.hpp>
#include <chorale/cluster/resolvers/hostlist.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::resolve {

/// Resolver for a step of a Slurm job: srun. A shell in an allocation does not count, nor does a step of one task.
///
/// order   ranks are on nodes in blocks, the first ones on the first node
struct Slurm {
  static std::optional<LaunchInfo> launch(Environment const& env) {
    auto const world = env.number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}, 1, Cluster::most);
    if (!env.has("SLURM_STEP_ID") || !env.has("SLURM_PROCID") || !world || *world == 1) return std::nullopt;
    auto launch       = LaunchInfo{.by = "Slurm"};
    launch.world      = *world;
    launch.rank       = *env.number("SLURM_PROCID", 0, Cluster::most);
    launch.job        = "Slurm " + std::string{env.get("SLURM_JOB_ID")} + "." + std::string{env.get("SLURM_STEP_ID")};
    launch.host       = env.get("SLURMD_NODENAME");
    auto const again  = env.number("SLURM_RESTART_COUNT", 0, 1'000'000'000).value_or(0);
    launch.incarnation = static_cast<std::uint32_t>(again);
    return checked(launch);
  }

  /// throws  BadArgument when the lists of nodes and tasks do not match each other, or the variables of this task
  static void place(Environment const& env, LaunchInfo& launch) {
    auto const nodes = hosts_of(env);
    auto const tasks = tasks_of(env, nodes.size());
    auto const sum   = std::accumulate(tasks.begin(), tasks.end(), std::size_t{0},
                                       [](auto n, int more) { return n + static_cast<std::size_t>(more); });
    if (sum != static_cast<std::size_t>(launch.world))
      throw BadArgument{"Slurm: " + std::to_string(launch.world) + " tasks, but the tasks on all nodes are " +
                            std::to_string(sum) + " in " + std::string{tasks_name(env)} + ".",
                        "srun without variables of another step."};
    auto const port = base_port(env);
    auto places     = std::vector<std::size_t>{};                          // [rank]: node
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      if (port + tasks[node] - 1 > 65'535)
        throw BadArgument{"Slurm: " + std::to_string(tasks[node]) + " tasks on " + nodes[node] + " from port " +
                              std::to_string(port) + " on need port " + std::to_string(port + tasks[node] - 1) +
                              ", above 65535.", "CHORALE_PORT=20000"};
      for (int local = 0; local < tasks[node]; ++local) {
        if (static_cast<int>(places.size()) == launch.rank) expect_here(env, launch, node, local, tasks[node]);
        launch.addresses.push_back(HostPort{nodes[node], port + local}.text());
        places.push_back(node);
      }
    }
    if (launch.host.empty()) launch.host = nodes[places[static_cast<std::size_t>(launch.rank)]];
  }

 private:
  static std::vector<std::string> hosts_of(Environment const& env) {
    auto const name = env.first_name({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (name.empty())
      throw BadArgument{"Slurm: SLURM_STEP_NODELIST is not set, so that nobody knows where the other tasks are.",
                        "srun, or CHORALE_CLUSTER with the addresses."};
    return hostlist::hosts(env.get(name), std::string{name});
  }

  static std::string_view tasks_name(Environment const& env) {
    return env.first_name({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  }

  static std::vector<int> tasks_of(Environment const& env, std::size_t nodes) {
    auto const name = tasks_name(env);
    if (name.empty())
      throw BadArgument{"Slurm: SLURM_STEP_TASKS_PER_NODE is not set, so that nobody knows which task is where.",
                        "srun, or CHORALE_CLUSTER with the addresses."};
    auto tasks = hostlist::counts(env.get(name), std::string{name});
    if (tasks.size() != nodes)
      throw BadArgument{"Slurm: " + std::string{name} + " is for " + std::to_string(tasks.size()) +
                            " nodes, and the list of nodes has " + std::to_string(nodes) + ".",
                        "srun without variables of another step."};
    return tasks;
  }

  static int base_port(Environment const& env) {
    if (auto const own = env.number("CHORALE_PORT", 1, 65'535)) return *own;
    return 20'000 + env.number({"SLURM_JOB_ID", "SLURM_JOBID"}, 0, 2'147'483'647).value_or(0) % 20'000;
  }

  /// Checks that this task is where a distribution in blocks puts it: number `local` of `size` on `node`.
  static void expect_here(Environment const& env, LaunchInfo& launch, std::size_t node, int local, int size) {
    auto const expect = [&](std::string const& name, int in_blocks) {
      auto const said = env.number(name, 0, Cluster::most).value_or(in_blocks);
      if (said != in_blocks)
        throw BadArgument{"Slurm: task " + std::to_string(launch.rank) + " has " + name + "=" + std::to_string(said) +
                              ", but would have " + std::to_string(in_blocks) + " if tasks lay on nodes in blocks.",
                          "srun --distribution=block"};
    };
    expect("SLURM_NODEID", static_cast<int>(node));
    expect("SLURM_LOCALID", local);
    launch.local_rank = local;
    launch.local_size = size;
  }
};

static_assert(Resolver<Slurm>);

}  // namespace chorale::resolve
