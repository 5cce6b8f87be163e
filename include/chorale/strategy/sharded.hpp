// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/check.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/strategy.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

namespace chorale {

/// What replicas have a shard of, instead of the whole.
///
/// one     the optimizer's state
///
/// source  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020
enum class Zero { one };

/// Replica of a ShardedStrategy: it gets the sums of its shard of the gradients, and gives the values of its shard to all.
template <class R, class E>
class ShardedReplica : public Replica<ReduceScatterOf<R>, E> {
  using Base = Replica<ReduceScatterOf<R>, E>;

 public:
  ShardedReplica(R reduce, E& at) : Base{ReduceScatterOf<R>{std::move(reduce)}, at} {}

  /// Adds up the gradients of all replicas, in this replica's shard; their rows, loss and metrics everywhere.
  ///
  /// returns   the sums, of which the shard is this replica's
  /// throws    as Replica::all_reduce()
  placement::Placed<placement::Sharded<0>> reduce_scatter(Gradients& gradients) {
    Base::all_reduce(gradients);
    return {gradients.body(), shard(this->id()).of(gradients.body().size())};
  }

  /// Refuses gradients: no replica gets the sums of all.
  template <class G>
  void all_reduce(G&) {
    static_assert(sizeof(G) == 0, "chorale: under ShardedStrategy a replica gets the sums of its shard of the gradients "
                                  "only. End the step by live.update(replica, copy, gradients)");
  }

  /// Brings every replica the variables of all shards.
  void gather_variables(Variables const& variables) {
    if (this->num_replicas() == 1) return;
    auto const body = variables.body();
    set_ends(body.size());
    gather_.restart(this->endpoint(),
                    {.collective = Collective::all_gather, .x = body, .tag = Base::alone, .ends = ends_});
    gather_.finish();
  }

  /// Adds up a few numbers over all replicas, which get the same bits.
  void add_up(Span<double> numbers) {
    if (this->num_replicas() == 1) return;
    summing_.restart(this->endpoint(), numbers, Op::sum, Base::alone);
    summing_.finish();
  }

  /// Brings the slots of all shards to rank 0, in the layout of one replica that has all.
  ///
  /// mine    the slots of this replica's shard, one after the other
  /// whole   on rank 0: memory for `slots` slots of all variables
  void gather_slots(Span<float const> mine, Span<float> whole, std::size_t slots) {
    if (this->id() != 0) return this->exchange(0, std::as_bytes(mine), {});
    each_shard(whole, slots, [&](Rank rank, Span<float> own, auto&& each_slot) {
      if (rank == 0) std::ranges::copy(mine, own.begin());
      else this->exchange(rank, {}, std::as_writable_bytes(own));
      each_slot([](float* in_whole, float* in_own, std::size_t n) { std::copy_n(in_own, n, in_whole); });
    });
  }

  /// Brings each replica the slots of its shard, from those of all variables on rank 0. Undoes gather_slots().
  void scatter_slots(Span<float> whole, Span<float> mine, std::size_t slots) {
    if (this->id() != 0) return this->exchange(0, {}, std::as_writable_bytes(mine));
    each_shard(whole, slots, [&](Rank rank, Span<float> own, auto&& each_slot) {
      each_slot([](float* in_whole, float* in_own, std::size_t n) { std::copy_n(in_whole, n, in_own); });
      if (rank == 0) std::ranges::copy(own, mine.begin());
      else this->exchange(rank, std::as_bytes(own), {});
    });
  }

 private:
  placement::Shard shard(Rank rank) const { return {rank, this->num_replicas()}; }

  void set_ends(std::size_t elements) {
    ends_.clear();
    for (Rank rank = 0; rank < this->num_replicas(); ++rank) ends_.push_back(shard(rank).of(elements).end);
  }

  /// Calls f(rank, own, each_slot) for each shard: `own` is memory for its slots, and each_slot(g) calls g(place in whole,
  /// place in own, elements) for each of them.
  template <class F>
  void each_shard(Span<float> whole, std::size_t slots, F&& f) {
    auto const stride = slots == 0 ? 0 : whole.size() / slots;
    auto memory       = std::vector<float>{};
    for (Rank rank = 0; rank < this->num_replicas(); ++rank) {
      auto const part = shard(rank).of(stride);
      memory.resize(slots * part.size());
      f(rank, Span<float>{memory}, [&](auto&& copy) {
        for (std::size_t k = 0; k < slots; ++k)
          copy(whole.data() + k * stride + part.begin, memory.data() + k * part.size(), part.size());
      });
    }
  }

  std::vector<std::size_t> ends_;
  ScheduleExecution<typename GatherOf<R>::type, E, float> gather_;
  ScheduleExecution<RecursiveDoublingAllReduce, E, double> summing_;
};

/// Synchronous data parallelism in one process or many, in which no replica keeps what another one keeps: ZeRO. Each
/// replica has all variables, and the optimizer's state of its shard of them. A step adds up gradients so that each replica
/// gets the sums of its shard, updates the shard, and brings all replicas the new values.
///
///   ShardedStrategy<Zero::one>{Cpu::split(4)}                         as MirroredStrategy
///   ShardedStrategy<Zero::one>{Cluster::from_env()}                   as MultiWorkerMirroredStrategy
///   ShardedStrategy<Zero::one>{Cluster::from_env(), Cpu::split(2)}
///
/// keeps   all copies of a variable are bit-equal after every step. Under Reproducible the bits are those of one replica
///         with the whole batch, clipped or not, whatever the number of replicas. A checkpoint has no trace of shards
/// cost    of bytes those of a ring all-reduce, 2 (P-1)/P of the gradients; and one message between pairs, of 8 bytes for
///         each replica, or some 50 times as many where gradients are clipped. Of memory, 1/P of the optimizer's state
/// throws  BadArgument when there is no device, or the cluster has tasks that this strategy cannot use; PeerLost when a
///         replica fails: in the middle of an update, some shards are then those of the step before
/// source  Rajbhandari et al., SC 2020
template <Zero zero, Device D = DefaultDevice>
class ShardedStrategy {
  static_assert(D::memory == Memory::host, "chorale: ShardedStrategy computes on host memory. Use it over Cpu");

 public:
  using device    = D;
  using placement = chorale::placement::Mirrored;                          // of the variables
  static constexpr bool reduces_every_step = true, shards_optimizer = true;
  template <class R>
  static constexpr bool takes = scatters<R>;
  template <class R, class E>
  using replica_type = ShardedReplica<R, E>;

  explicit ShardedStrategy(std::vector<D> devices = D::visible()) : replicas_{MirroredStrategy<D>{std::move(devices)}} {}
  explicit ShardedStrategy(Cluster cluster) : replicas_{MultiWorkerMirroredStrategy<D>{std::move(cluster)}} {}
  /// devices   of each worker; all workers have the same number
  ShardedStrategy(Cluster cluster, std::vector<D> devices)
      : replicas_{MultiWorkerMirroredStrategy<D>{std::move(cluster), std::move(devices)}} {}

  int num_replicas() const {
    return std::visit([](auto const& all) { return all.num_replicas(); }, replicas_);
  }
  Group group() const {
    return std::visit([](auto const& all) { return all.group(); }, replicas_);
  }
  std::vector<D> local_devices() const {
    return std::visit([](auto const& all) { return all.local_devices(); }, replicas_);
  }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.reduce_scatter(gradients);                       // most buckets sent during backward
    auto const variables = model.net.variables();
    model.optimizer.apply_shard(variables, gradients, [&](Span<double> numbers) { replica.add_up(numbers); });
    replica.gather_variables(variables);
  }

 private:
  std::variant<MirroredStrategy<D>, MultiWorkerMirroredStrategy<D>> replicas_;           // devices, ranks and addresses
};

}  // namespace chorale
