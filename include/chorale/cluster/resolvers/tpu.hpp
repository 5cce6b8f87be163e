// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>

#include <chorale/cluster/cluster.hpp>
#include <chorale/cluster/environment.hpp>
#include <chorale/cluster/host_port.hpp>
#include <chorale/cluster/launch_info.hpp>
#include <chorale/cluster/resolvers/rank_launchers.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Hosts of TPUs, from the variables that their service sets.
namespace chorale::resolve {

/// Resolver for the hosts of a slice of TPUs, one process on each: TPU_WORKER_HOSTNAMES, or TPU_PROCESS_ADDRESSES, has
/// the hosts in order, and TPU_WORKER_ID, or CLOUD_TPU_TASK_ID, says which of them this is. Several slices have
/// MEGASCALE_NUM_SLICES, MEGASCALE_SLICE_ID and MEGASCALE_COORDINATOR_ADDRESS, the first host of the first slice.
///
/// keeps   nothing is asked of a server of metadata: where only that knows the hosts, write the variables
/// source  tf.distribute.cluster_resolver.TPUClusterResolver; JAX's cloud_tpu_cluster.py; the message of libtpu about
///         TPU_WORKER_HOSTNAMES, for its two forms: a host, and host:port:address
struct TPUClusterResolver {
  static constexpr int default_port = 8482;  // JAX's for the processes of a slice

  static std::optional<LaunchInfo> launch(Environment const& env) {
    expect_known(env);
    auto const named  = env.first_name({"TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"});
    auto const id     = env.first_name({"TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"});
    auto const slices = slices_of(env, named);
    if (named.empty()) return std::nullopt;
    auto const hosts = hosts_of(env, named);
    expect_chips(env, named, hosts.size());
    if (hosts.size() == 1 && slices.count == 1) {
      if (!id.empty()) expect_below(env, id, 1, named);
      return std::nullopt;
    }
    if (id.empty())
      throw BadArgument{"TPU: " + std::string{named} + " has " + counted(hosts.size(), "host") +
                            ", and neither TPU_WORKER_ID nor CLOUD_TPU_TASK_ID says which of them this is.",
                        "TPU_WORKER_ID=0 on the first of them, 1 on the second, and so on."};
    auto const worker = expect_below(env, id, static_cast<int>(hosts.size()), named);
    if (env.has("TPU_WORKER_ID") && env.has("CLOUD_TPU_TASK_ID") &&
        expect_below(env, "CLOUD_TPU_TASK_ID", static_cast<int>(hosts.size()), named) != worker)
      throw BadArgument{"TPU: TPU_WORKER_ID=" + printable(env.get("TPU_WORKER_ID")) +
                            " and CLOUD_TPU_TASK_ID=" + printable(env.get("CLOUD_TPU_TASK_ID")) + " name two hosts.",
                        "unset the one that another job left behind."};
    auto launch       = LaunchInfo{.by = "TPU", .is_per_host = true};
    launch.world      = static_cast<int>(hosts.size()) * slices.count;
    launch.rank       = slices.me * static_cast<int>(hosts.size()) + worker;
    launch.local_rank = 0;
    launch.local_size = 1;
    launch.host       = hosts[static_cast<std::size_t>(worker)];
    launch.job        = "TPU " + std::string{env.get("TPU_NAME")} + " at " +
                 (slices.count > 1 ? std::string{env.get("MEGASCALE_COORDINATOR_ADDRESS")} : hosts.front());
    return checked(launch);
  }

  static void place(Environment const& env, LaunchInfo& launch) {
    auto const port = env.number("CHORALE_PORT", 1, 65'535).value_or(default_port);
    if (slices_of(env, "TPU_WORKER_HOSTNAMES").count > 1) {  // other slices' hosts are not named
      launch.no_addresses = several_hosts(launch);
      auto const master   = std::string{env.get("MEGASCALE_COORDINATOR_ADDRESS")};
      place_from(launch, master.substr(0, master.find(':')), port, env.has("CHORALE_PORT") ? "CHORALE_PORT" : "JAX's");
      return;
    }
    auto const named = env.first_name({"TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"});
    for (auto const& host : hosts_of(env, named)) launch.addresses.push_back(HostPort{host, port}.text());
  }

 private:
  struct Slices {
    int count, me;
  };

  static std::string counted(std::size_t n, std::string const& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  }

  /// Refuses a TPU that only its own server reaches: PJRT runs on the host that has the device.
  static void expect_known(Environment const& env) {
    for (auto const name : {"COLAB_TPU_ADDR", "XRT_TPU_CONFIG"})
      if (env.has(name) && !env.has("TPU_WORKER_HOSTNAMES"))
        throw BadArgument{"TPU: " + std::string{name} + "=" + printable(env.get(name)) +
                              " names a TPU behind a server of its own, which PJRT cannot use.",
                          "a program on the TPU's own host, or unset it when another job left it behind."};
  }

  static std::vector<std::string> hosts_of(Environment const& env, std::string_view named) {
    auto hosts = std::vector<std::string>{};
    auto left  = env.get(named);
    for (;;) {
      auto const one   = left.substr(0, left.find(','));
      auto const parts = std::count(one.begin(), one.end(), ':');
      auto const where = std::string{named} + ", host " + std::to_string(hosts.size());
      if (hosts.size() == static_cast<std::size_t>(Cluster::most))
        throw BadArgument{"TPU: " + where + ": there are more hosts than " + std::to_string(Cluster::most) + ".",
                          "unset it when another job left it behind."};
      auto const host = parts == 2 ? one.substr(one.rfind(':') + 1) : parts == 1 ? one.substr(0, one.find(':')) : one;
      hosts.push_back(HostPort::parse(std::string{host} + ":1", "TPU: " + where).host);
      if (std::ranges::count(hosts, hosts.back()) > 1)
        throw BadArgument{"TPU: " + where + ": " + hosts.back() + " is there twice.", "one entry for each host."};
      if (one.size() == left.size()) return hosts;
      left.remove_prefix(one.size() + 1);
    }
  }

  static int expect_below(Environment const& env, std::string_view id, int hosts, std::string_view named) {
    auto const worker = *env.number(id, 0, Cluster::most);
    if (worker < hosts) return worker;
    throw BadArgument{"TPU: " + std::string{id} + " is " + std::to_string(worker) + ", and " + std::string{named} +
                          " has " + counted(static_cast<std::size_t>(hosts), "host") + ".",
                      "an id from 0 to " + std::to_string(hosts - 1) + ", or the hosts of this job."};
  }

  static Slices slices_of(Environment const& env, std::string_view named) {
    auto const count = env.number("MEGASCALE_NUM_SLICES", 1, Cluster::most).value_or(1);
    auto const me    = env.number("MEGASCALE_SLICE_ID", 0, Cluster::most).value_or(0);
    if (me >= count)
      throw BadArgument{"TPU: MEGASCALE_SLICE_ID is " + std::to_string(me) + ", and MEGASCALE_NUM_SLICES is " +
                            (env.has("MEGASCALE_NUM_SLICES") ? std::to_string(count) : "not set") + ".",
                        "an id below the number of slices."};
    if (count == 1) return {1, 0};
    for (auto const name : {"MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS"})
      if (!env.has(name))
        throw BadArgument{"TPU: there are " + std::to_string(count) + " slices, and " + name + " is not set.",
                          "the variables of the service that started this process."};
    if (named.empty())
      throw BadArgument{"TPU: there are " + std::to_string(count) + " slices, and TPU_WORKER_HOSTNAMES is not set.",
                        "the hosts of this slice, in order."};
    return {count, me};
  }

  /// Refuses a number of hosts that a slice of this type cannot have: TPU_ACCELERATOR_TYPE counts chips, or cores in
  /// versions with two on a chip; a host has at most 8 chips, and all hosts of a slice have as many.
  static void expect_chips(Environment const& env, std::string_view named, std::size_t hosts) {
    constexpr auto counts_chips = std::array<std::string_view, 3>{"v5litepod-", "v5e-", "v6e-"};
    constexpr auto counts_cores = std::array<std::string_view, 4>{"v2-", "v3-", "v4-", "v5p-"};
    auto const type             = env.get("TPU_ACCELERATOR_TYPE");
    auto const is_of            = [&](auto const& all) {
      return std::ranges::any_of(all, [&](std::string_view start) { return type.starts_with(start); });
    };
    auto const cores = is_of(counts_cores) ? 2 : 1;
    if (cores == 1 && !is_of(counts_chips)) return;
    auto const number = whole_number(type.substr(type.find('-') + 1), 1'000'000);
    auto const chips  = number ? static_cast<std::size_t>(*number / cores) : 0;
    if (chips > 0 && chips % hosts == 0 && chips / hosts <= 8) return;
    throw BadArgument{"TPU: TPU_ACCELERATOR_TYPE=" + printable(type) + " has " + counted(chips, "chip") + ", and " +
                          std::string{named} + " has " + counted(hosts, "host") +
                          ": a host has at most 8, all as many.",
                      "both variables of one slice."};
  }
};

static_assert(Resolver<TPUClusterResolver>);

}  // namespace chorale::resolve
