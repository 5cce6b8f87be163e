// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>

#include <chorale/cluster/cluster.hpp>
#include <chorale/cluster/environment.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Description of this process by a launcher that only knows ranks.
struct LaunchInfo {
  std::string by;  // "torchrun"
  int rank = 0, world = 1;
  int local_rank = -1, local_size = -1;  // of this host; -1: not known
  int agents       = 0;                  // its own processes, which started the ranks
  bool is_per_host = false;              // it counts hosts, one rank on each
  std::string job{};
  std::uint32_t incarnation = 0;
  std::string host{};                    // this host, if it is known
  std::vector<std::string> addresses{};  // [rank]; empty: not known
  std::string no_addresses{};            // then: the reason, as a sentence
  std::string meets_at{};                // then: rank 0's address, if it is known
  int spare_ports = 0;                   // see RendezvousInfo

  bool is_one_host() const { return world == 1 || local_size == world; }
  /// True if a service started the ranks' own launcher on each of its hosts.
  bool has_hosts_of(LaunchInfo const& service) const {
    return service.is_per_host && local_size > 0 && service.world * local_size == world;
  }
};

/// Finds a launcher in an environment.
///
///   launch(env)        nothing when the launcher did not start this process
///   place(env, it)     fills in addresses, or no_addresses and meets_at; called first for the launcher believed
///
/// throws  BadArgument from both, when the launcher's variables cannot be used
template <class R>
concept Resolver = requires(Environment const& env, LaunchInfo& launch) {
  { R::launch(env) } -> std::same_as<std::optional<LaunchInfo>>;
  { R::place(env, launch) };
};

namespace resolve {

/// throws  BadArgument when the rank, or the rank on this host, is not below its size
inline LaunchInfo checked(LaunchInfo launch) {
  auto const expect_below = [&](int rank, int size, std::string const& what) {
    if (rank >= size)
      throw BadArgument{launch.by + ": " + what + " " + std::to_string(rank) + " of " + std::to_string(size) +
                            ": the first is 0, and the last " + std::to_string(size - 1) + ".",
                        "unset the variables that another job left behind."};
  };
  expect_below(launch.rank, launch.world, "rank");
  if (launch.local_rank < 0 || launch.local_size < 0) launch.local_rank = launch.local_size = -1;
  else expect_below(launch.local_rank, launch.local_size, "local rank");
  if (launch.local_size > launch.world)
    throw BadArgument{launch.by + ": " + std::to_string(launch.local_size) + " ranks on this host, of " +
                          std::to_string(launch.world) + " in all.",
                      "unset the variables that another job left behind."};
  return launch;
}

/// Sets addresses: on one host, rank r is at host:base + r; on several, `meets_at` is host:base. Ports that are not
/// CHORALE_PORT nobody has chosen: then others will do, too.
///
/// throws  BadArgument when there are not that many ports
inline void place_from(LaunchInfo& launch, std::string const& host, int base, std::string const& base_is) {
  auto const last = base + launch.world - (launch.is_one_host() ? 1 : 0);
  if (last > 65'535)
    throw BadArgument{launch.by + ": " + std::to_string(launch.world) + " ranks from port " + std::to_string(base) +
                          " on, which is " + base_is + ", need port " + std::to_string(last) + ", above 65535.",
                      "CHORALE_PORT=20000"};
  if (base_is != "CHORALE_PORT" && launch.world > 1)
    launch.spare_ports = std::clamp(65'535 - base - launch.world, 0, 15);
  if (!launch.is_one_host()) {
    launch.meets_at = HostPort{host, base}.text();
    return;
  }
  launch.addresses.clear();
  for (int rank = 0; rank < launch.world; ++rank) launch.addresses.push_back(HostPort{host, base + rank}.text());
}

inline ClusterParts parts_of(LaunchInfo const& launch) {
  auto parts = ClusterParts{.me = {Role::worker, launch.rank}, .incarnation = launch.incarnation};
  for (int rank = 0; rank < launch.world; ++rank) parts.tasks.push_back({{Role::worker, rank}});
  for (std::size_t i = 0; i < launch.addresses.size(); ++i) parts.tasks[i].address = launch.addresses[i];
  if (!launch.job.empty()) parts.job = launch.job;
  parts.local_rank   = launch.local_rank;
  parts.local_size   = launch.local_size;
  parts.host         = launch.host;
  parts.found_in     = launch.by;
  parts.no_addresses = launch.no_addresses;
  parts.meets_at     = launch.meets_at;
  parts.spare_ports  = launch.spare_ports;
  return parts;
}

}  // namespace resolve
}  // namespace chorale
