// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/cluster.hpp>
#include <chorale/cluster/host_port.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/strategy/strategy.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// Default devices of one process: its share of the host if the host has several processes, else all visible devices.
template <Device D> std::vector<D> devices_of(Cluster const& cluster) {
  if constexpr (requires { D::split(2); }) {
    auto const size = cluster.local_size();
    auto const here = static_cast<int>(D{}.cores().size());
    if (size > 1 && size <= here) return {D::split(size)[static_cast<std::size_t>(cluster.local_rank())]};
    if (size > here) return D::logical(1);
  }
  return D::visible();
}

/// Addresses of the devices of all workers: the first listens at its worker's, others 1000, 2000, .. ports higher.
///
/// throws  BadArgument when two devices would listen at one address
inline std::vector<std::string> addresses_of(Cluster const& cluster, int devices) {
  constexpr int apart = 1'000, ports = 65'536, first_port = 1'024;
  auto all = std::vector<std::string>{};
  for (auto const& address : cluster.addresses()) {
    for (int d = 0; d < devices; ++d) {
      auto at = HostPort::parse(address);
      at.port += d * apart;
      if (at.port >= ports) at.port = first_port + (at.port - ports) % (ports - first_port);
      if (std::ranges::find(all, at.text()) != all.end())
        throw BadArgument{"device " + std::to_string(d) + " of the worker at " + address + " would listen at " +
                              at.text() + ", where another one does.",
                          "ports of workers that are no multiple of 1000 apart, or one device for each worker."};
      all.push_back(at.text());
    }
  }
  return all;
}

}  // namespace detail

/// Synchronous data parallelism over processes, on one host or many: each worker has one or more devices, each device
/// is a replica, and every variable is on every replica. Every process runs the same program.
///
///   MultiWorkerMirroredStrategy{Cluster::from_env()}                  one device per worker: its share of the host
///   MultiWorkerMirroredStrategy{Cluster::from_env(), Cpu::split(2)}   with Layered<LocalTransport, TcpTransport>
///
/// ranks   of worker w with d devices: w · d to w · d + d - 1
/// keeps   all copies of a variable are bit-equal after every step
/// throws  BadArgument when the cluster has tasks that this strategy cannot use, or this process is not a worker;
///         PeerLost when a replica fails: the variables then have the values of the step before
/// source  tf.distribute.MultiWorkerMirroredStrategy
template <Device D = DefaultDevice> class MultiWorkerMirroredStrategy {
 public:
  using device                             = D;
  using placement                          = chorale::placement::Mirrored;
  static constexpr bool reduces_every_step = true, applies_sums = true;

  explicit MultiWorkerMirroredStrategy(Cluster cluster)
      : MultiWorkerMirroredStrategy{cluster, detail::devices_of<D>(cluster)} {}

  /// devices   of each worker; all workers have the same number
  MultiWorkerMirroredStrategy(Cluster cluster, std::vector<D> devices)
      : cluster_{std::move(cluster)}, devices_{std::move(devices)} {
    CHORALE_EXPECTS(!devices_.empty(), "MultiWorkerMirroredStrategy got a list of 0 devices; a worker needs one");
    if (cluster_.servers() > 0)
      throw BadArgument{"MultiWorkerMirroredStrategy cannot use the " + std::to_string(cluster_.servers()) +
                            " parameter servers that " + cluster_.found_in() + " names.",
                        "a cluster without ps tasks, or ParameterServerStrategy."};
    if (!cluster_.is_worker())
      throw BadArgument{"this process is " + cluster_.task().text() + ", which trains nothing.",
                        "starting this program as a worker only."};
  }

  int num_replicas() const { return cluster_.workers() * replicas_on(devices_); }
  Cluster const& cluster() const { return cluster_; }

  Group group() const {
    auto const d = devices_per_worker(), n = cluster_.workers() * d;
    if (cluster_.is_local()) return Group::all_local(n);
    auto local = std::vector<Rank>{};
    for (int i = 0; i < d; ++i) local.push_back(cluster_.worker_rank() * d + i);
    auto meeting              = cluster_.meeting();
    meeting.ranks_per_process = d;
    if (cluster_.has_addresses()) meeting.addresses = detail::addresses_of(cluster_, d);
    return {n, std::move(local), std::move(meeting)};
  }

  std::vector<D> local_devices() const {
    auto all = devices_;
    for (int worker = 1; cluster_.is_local() && worker < cluster_.workers(); ++worker)
      all.insert(all.end(), devices_.begin(), devices_.end());
    return all;
  }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);  // Reduce over Transport; most buckets sent during backward
    model.optimizer.apply(model.net.variables(), gradients);  // same bits in, same bits out, on every replica
  }

 private:
  int devices_per_worker() const { return static_cast<int>(devices_.size()); }

  Cluster cluster_;
  std::vector<D> devices_;
};

MultiWorkerMirroredStrategy(Cluster) -> MultiWorkerMirroredStrategy<>;
template <Device D> MultiWorkerMirroredStrategy(Cluster, std::vector<D>) -> MultiWorkerMirroredStrategy<D>;

}  // namespace chorale
