// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>

#include <chorale/cluster/environment.hpp>
#include <chorale/cluster/host_port.hpp>
#include <chorale/cluster/launch_info.hpp>
#include <chorale/cluster/resolvers/hosts.hpp>
#include <chorale/cluster/resolvers/rank_launchers.hpp>
#include <chorale/cluster/resolvers/tf_config.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Services that start one process on each of their hosts, and number the hosts.
namespace chorale::resolve {

/// Resolver for Kubeflow's Trainer, which sets torchrun's options as variables: PET_NNODES, PET_NODE_RANK,
/// PET_MASTER_ADDR. Its program may be torchrun, which is then believed, or another one, with one process per node.
///
/// source  https://github.com/kubeflow/trainer, runtimes of the plug-in torch
struct KubeflowTrainer {
  static std::optional<LaunchInfo> launch(Environment const& env) {
    if (!env.has("PET_NNODES") || !env.has("PET_NODE_RANK") || !env.has("PET_MASTER_ADDR")) return std::nullopt;
    auto launch  = LaunchInfo{.by = "Kubeflow", .is_per_host = true};
    launch.world = *env.number("PET_NNODES", 1, Cluster::most);
    launch.rank  = *env.number("PET_NODE_RANK", 0, Cluster::most);
    launch.job   = "Kubeflow at " + std::string{env.get("PET_MASTER_ADDR")};
    if (launch.world == 1 && launch.rank == 0) return std::nullopt;
    return checked(launch);
  }

  static void place(Environment const& env, LaunchInfo& launch) {
    auto const own      = env.number("CHORALE_PORT", 1, 65'535);
    auto const master   = env.number("PET_MASTER_PORT", 1, 65'535);
    auto const host     = host_in(env, env.has("CHORALE_MASTER") ? "CHORALE_MASTER" : "PET_MASTER_ADDR", launch.by);
    launch.no_addresses = "neither PET_MASTER_PORT nor CHORALE_PORT is set.";
    if (!own && !master) return;
    launch.no_addresses = several_hosts(launch);
    place_from(launch, host, own ? *own : *master + 1, own ? "CHORALE_PORT" : "PET_MASTER_PORT and 1");
  }
};

/// Resolver for a training job of SageMaker on several hosts: SM_HOSTS and SM_CURRENT_HOST of its toolkit, or, in a
/// container without the toolkit, the file input/config/resourceconfig.json in SAGEMAKER_BASE_DIR, else in /opt/ml.
///
/// source  tf.distribute.cluster_resolver.SageMakerClusterResolver; sagemaker_training.environment
struct SageMaker {
  static constexpr int default_port = 2223;  // TensorFlow's for SageMaker

  static std::optional<LaunchInfo> launch(Environment const& env) {
    auto launch      = LaunchInfo{.by = "SageMaker", .is_per_host = true};
    auto const hosts = hosts_of(env, launch.host);
    if (hosts.empty()) return std::nullopt;
    auto const me = std::ranges::find(hosts, launch.host);
    if (me == hosts.end())
      throw BadArgument{"SageMaker: this host is " + in_quotes(launch.host) + ", which is not one of " +
                            std::to_string(hosts.size()) + " hosts.",
                        "unset SM_HOSTS and SM_CURRENT_HOST when another job left them behind."};
    if (hosts.size() == 1) return std::nullopt;
    launch.world      = static_cast<int>(hosts.size());
    launch.rank       = static_cast<int>(me - hosts.begin());
    launch.local_rank = 0;
    launch.local_size = 1;
    launch.job        = "SageMaker " + std::string{env.get("TRAINING_JOB_NAME")};
    return checked(launch);
  }

  static void place(Environment const& env, LaunchInfo& launch) {
    auto host       = std::string{};
    auto const port = env.number("CHORALE_PORT", 1, 65'535).value_or(default_port);
    for (auto const& name : hosts_of(env, host))
      launch.addresses.push_back(HostPort::parse(name + ":" + std::to_string(port), "SageMaker").text());
  }

 private:
  /// Returns all hosts, and sets the name of this one; none outside of SageMaker.
  static std::vector<std::string> hosts_of(Environment const& env, std::string& me) {
    expect_whole(env);
    if (env.has("SM_HOSTS")) {
      me              = env.get("SM_CURRENT_HOST");
      auto const json = json_of(env.get("SM_HOSTS"), "SM_HOSTS", hosts_example);
      return names_in(JsonPart{json, "SM_HOSTS"});
    }
    if (!env.has("TRAINING_JOB_NAME")) return {};
    auto const base = std::string{env.has("SAGEMAKER_BASE_DIR") ? env.get("SAGEMAKER_BASE_DIR") : "/opt/ml"};
    auto const path = base + "/input/config/resourceconfig.json";
    if (!std::filesystem::exists(path)) return {};  // a job of another service, with such a name
    auto const json = json_of(file_named(path, "SageMaker"), path, hosts_example);
    auto const all  = JsonPart{json, path + ":"};
    all.expect_object();
    for (auto const* const key : {"hosts", "current_host"})
      if (!all.has(key)) all.fail("has no " + std::string{key}, hosts_example);
    me = all["current_host"].text();
    return names_in(all["hosts"]);
  }

  static void expect_whole(Environment const& env) {
    if (env.has("SM_HOSTS") == env.has("SM_CURRENT_HOST")) return;
    auto const has = env.has("SM_HOSTS");
    throw BadArgument{std::string{"SageMaker: "} + (has ? "SM_HOSTS" : "SM_CURRENT_HOST") + " is set without " +
                          (has ? "SM_CURRENT_HOST" : "SM_HOSTS") + ".",
                      "set both, or unset what another job left behind."};
  }

  static std::vector<std::string> names_in(JsonPart const& list) {
    if (!list.value().is_array() || list.value().empty())
      list.fail("is " + list.kind() + ", and must be an array of hosts", R"(["algo-1", "algo-2"])");
    auto names = std::vector<std::string>{};
    for (std::size_t i = 0; i < list.value().size(); ++i) names.push_back(list[i].text());
    return names;
  }

  static constexpr auto hosts_example = R"({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]})";
};

static_assert(Resolver<KubeflowTrainer> && Resolver<SageMaker>);

}  // namespace chorale::resolve
