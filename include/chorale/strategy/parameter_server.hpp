// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/placement/layout.hpp>
#include <chorale/placement/sharded.hpp>
#include <chorale/strategy/consistency.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/parameter_server/host.hpp>
#include <chorale/strategy/parameter_server/replica.hpp>
#include <chorale/strategy/parameter_server/server_update.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Variables on servers, computing on workers: each variable, or piece of one, is stored on one server, with its slots
/// of the optimizer. Every process runs the same program; the cluster defines which processes are servers: there, fit()
/// serves until all workers have ended.
///
///   ParameterServerStrategy{Cluster::from_env()}                                        asynchronous
///   ParameterServerStrategy{Cluster::from_env(), BoundedStaleness<4>{}}                 workers at most 4 steps apart
///   ParameterServerStrategy{Cluster::from_env(), Synchronous{}, placement::Partitioned<FixedShards<2>>{}}
///   ParameterServerStrategy{Cluster::from_env(), Asynchronous{}, placement::GreedyByBytes{}, Cpu::split(2)}
///                                                                                       two devices in each worker
///
/// ranks   first the replicas, where worker w with d devices has ranks from w · d on; then servers
/// keeps   what Consistency defines, for workers: the replicas of one worker make one push together. Gradients are
///         means over the rows of their push, or of their round. Of a table whose gradient is rows, a push has those
///         rows, and a worker gets back the rows that any worker has changed since
/// throws  BadArgument when the cluster has no server; PeerLost when a server fails: it names the shard. A lost worker
///         is left out
/// source  Li et al., OSDI 2014; tf.distribute.ParameterServerStrategy
template <Consistency C = Asynchronous, placement::Sharding P = placement::GreedyByBytes, Device D = DefaultDevice>
class ParameterServerStrategy {
 public:
  using device                      = D;
  using placement                   = P;
  using consistency                 = C;
  static constexpr bool in_lockstep = C::rounds && C::staleness == 0 && C::spares == 0;
  template <class R>  // gradients do not pass through R, but
  static constexpr bool takes = gives_plain_sums<R> || (ShardedReduce<R> && in_lockstep);  // in its order
  template <class R, class E> using replica_type = ParameterReplica<R, E>;
  template <class E> using host_type             = parameter_server::ServerHost<E>;

  explicit ParameterServerStrategy(Cluster cluster, C when = {}, P sharding = {})
      : ParameterServerStrategy{cluster, when, std::move(sharding), first_of(cluster)} {}

  /// devices   of each worker; the same number in all processes
  /// options   such as PushedAs::bf16
  ParameterServerStrategy(Cluster cluster, C, P sharding, std::vector<D> devices, ParameterOptions options = {})
      : cluster_{std::move(cluster)}, sharding_{std::move(sharding)}, devices_{std::move(devices)}, options_{options} {
    CHORALE_EXPECTS(!devices_.empty(), "ParameterServerStrategy got a list of 0 devices; a worker needs one");
    if (cluster_.servers() == 0)
      throw BadArgument{"ParameterServerStrategy needs a server, but " + cluster_.found_in() + " names " +
                            std::to_string(cluster_.workers()) + " workers and no ps task.",
                        "tools/launch --ps 1, a cluster with ps tasks, or MultiWorkerMirroredStrategy."};
    if (!cluster_.is_member())
      throw BadArgument{"this process is " + cluster_.task().text() + ", which neither trains nor serves.",
                        "starting this program as a worker or a ps task only."};
  }

  /// Selects FailureScope::peer in a transport that has the choice: other ranks then go on without a lost worker.
  template <Transport T> static void prepare(T& transport) {
    if constexpr (requires { transport.failures; }) transport.failures = decltype(transport.failures)::peer;
    if constexpr (requires { transport.transport; }) prepare(transport.transport);  // Staged, Counting, Faulty
  }

  /// Returns this strategy with functions that workers may have called on servers. Every process gives the same.
  ///
  /// throws  BadArgument when two have the same name, arguments and result: no server could tell them apart
  template <class... F> [[nodiscard]] ParameterServerStrategy with_updates(ServerUpdate<F> const&... updates) const {
    auto with = *this;
    (with.add(parameter_server::known(updates)), ...);
    return with;
  }
  std::vector<parameter_server::KnownUpdate> const& updates() const { return updates_; }

  int num_replicas() const { return cluster_.workers() * replicas_per_worker(); }
  int replicas_per_worker() const { return static_cast<int>(devices_.size()); }
  std::vector<D> const& worker_devices() const { return devices_; }
  ParameterOptions const& options() const { return options_; }
  Cluster const& cluster() const { return cluster_; }

  Group group() const {
    auto const d = replicas_per_worker(), all = num_replicas();
    if (cluster_.is_local()) return Group::all_local(all + cluster_.servers());
    auto local = std::vector<Rank>{};
    if (!cluster_.is_worker()) local.push_back(cluster_.rank() - cluster_.workers() + all);
    else
      for (int i = 0; i < d; ++i) local.push_back(cluster_.worker_rank() * d + i);
    auto addresses = detail::addresses_of(cluster_, d);
    for (int s = 1; s < cluster_.servers(); ++s)  // a server has one rank, a worker has d
      addresses[static_cast<std::size_t>(all + s)] = addresses[static_cast<std::size_t>(all + s * d)];
    addresses.resize(static_cast<std::size_t>(all + cluster_.servers()));
    auto meeting      = cluster_.meeting();
    meeting.addresses = std::move(addresses);
    return {all + cluster_.servers(), std::move(local), std::move(meeting)};
  }

  /// Group with one rank per task, whatever its devices: each worker is one thread that has them all. See coordinate().
  Group tasks() const {
    auto const all = cluster_.workers() + cluster_.servers();
    if (cluster_.is_local()) return Group::all_local(all);
    return {all, {cluster_.rank()}, cluster_.meeting()};
  }

  std::vector<D> local_devices() const {
    auto all = cluster_.is_worker() ? devices_ : std::vector<D>{};
    for (int worker = 1; cluster_.is_local() && worker < cluster_.workers(); ++worker)
      all.insert(all.end(), devices_.begin(), devices_.end());
    return all;
  }

  /// Returns which elements of a model's variables each server stores.
  ///
  /// replicas  ranks of each worker
  parameter_server::ShardLayout shards(PlanView const& plan, int slots, int replicas) const {
    for (auto const& v : plan.variables)
      if (!v.spec.trained())
        throw BadArgument{
            "servers apply an optimizer, which does not move " + std::string{std::string_view{v.name}} +
                (v.spec.tracked ? std::string{", a tracked variable."}
                                : ", a moving average with momentum " + std::to_string(v.spec.momentum) + "."),
            "MultiWorkerMirroredStrategy, or a model whose variables are all trained."};
    auto const layout =
        chorale::placement::lay_out(sharding_, chorale::placement::shapes_of(plan), cluster_.servers(), slots);
    auto tables = std::vector<parameter_server::RowTable>{};
    for (auto const& v : plan.variables)
      if (auto const rows = static_cast<std::size_t>(v.spec.dims[0]); v.spec.by_rows)
        tables.push_back({v.offset, rows, v.size / rows});
    for (auto const& piece : layout.pieces)
      if (auto const& v = plan.variables[piece.variable]; v.spec.by_rows && piece.axis != 0)
        throw BadArgument{"the gradient of " + std::string{std::string_view{v.name}} + " is rows, and axis " +
                              std::to_string(piece.axis) + ", along which it is to be cut, is not axis 0.",
                          "a partitioner along axis 0, or nn::DenseGradient."};
    auto runs = std::vector<std::vector<Range>>{};
    for (int server = 0; server < cluster_.servers(); ++server) {
      runs.push_back(chorale::placement::ranges_on(server, layout, plan.variables));
      if (runs.back().empty())
        throw BadArgument{"server " + std::to_string(server) + " of " + std::to_string(cluster_.servers()) +
                              " has none of the " + std::to_string(plan.variables.size()) + " variables.",
                          "fewer servers, or placement::Partitioned, which cuts variables into pieces."};
    }
    return {cluster_.workers(), std::move(runs), replicas, std::move(tables)};
  }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.push_and_pull(gradients, model.net.variables(), model.optimizer.now.epoch);
    ++model.optimizer.now.step;
  }

  /// Pulls the newest values, after all workers have ended their epoch.
  void finish(auto& replica, auto& model) const { replica.pull(model.net.variables()); }

 private:
  void add(parameter_server::KnownUpdate update) {
    CHORALE_EXPECTS(std::ranges::count(updates_, update.key, &parameter_server::KnownUpdate::key) == 0,
                    "two updates are called \"" + update.name + "\", with the same arguments and result");
    updates_.push_back(std::move(update));
  }
  static std::vector<D> first_of(Cluster const& cluster) {
    if (cluster.is_local()) return D::logical(1);
    return {cluster.is_worker() ? detail::devices_of<D>(cluster).front() : D::visible().front()};
  }

  Cluster cluster_;
  P sharding_;
  std::vector<D> devices_;  // of each worker
  ParameterOptions options_;
  std::vector<parameter_server::KnownUpdate> updates_;
};

template <Consistency C = Asynchronous, placement::Sharding P = placement::GreedyByBytes>
ParameterServerStrategy(Cluster, C = {}, P = {}) -> ParameterServerStrategy<C, P>;
template <Consistency C, placement::Sharding P, Device D>
ParameterServerStrategy(Cluster, C, P, std::vector<D>, ParameterOptions = {}) -> ParameterServerStrategy<C, P, D>;

}  // namespace chorale
