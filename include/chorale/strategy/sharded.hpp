// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/check.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/shard_cut.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/runtime/unit_exchange.hpp>
#include <chorale/strategy/strategy.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace chorale {

/// What replicas have a shard of, instead of the whole.
///
/// one     the optimizer's state
/// two     and the gradients: they are reduce-scattered during backward, out of two buffers in turn
/// three   and the variables: they are gathered for forward and again for backward, into two buffers in turn
///
/// source  Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020
enum class Zero { one, two, three };

/// Replica of a ShardedStrategy: it gets the sums of its shard of the gradients, and gives the values of its shard to
/// all.
template <class R, class E> class ShardedReplica : public Replica<ReduceScatterOf<R>, E> {
  using Base = Replica<ReduceScatterOf<R>, E>;

 public:
  ShardedReplica(R reduce, E& at) : Base{ReduceScatterOf<R>{std::move(reduce)}, at} {}

  /// Adds up the gradients of all replicas, in this replica's shard; their rows, loss and metrics everywhere.
  ///
  /// returns   the sums, complete in this replica's shard
  /// throws    as Replica::all_reduce()
  placement::Placed<placement::Sharded<0>> reduce_scatter(Gradients& gradients) {
    Base::all_reduce(gradients);
    return {gradients.body(), shard(this->id()).of(gradients.body().size())};
  }

  /// Refuses gradients: no replica gets the sums of all.
  template <std::same_as<Gradients> G> void all_reduce(G&) {
    static_assert(sizeof(G) == 0,
                  "chorale: under ShardedStrategy a replica gets the sums of its shard of the "
                  "gradients only. End the step by live.update(replica, copy, gradients)");
  }
  /// Combines a tensor of the program's own, as under any strategy.
  template <Reducible V> void all_reduce(Span<V> x, Op op = Op::sum) { Base::all_reduce(x, op); }

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

  /// Brings what all ranks hold to rank 0, into the layout of the whole: the slots of an optimizer, one after the
  /// other, or the values of variables.
  ///
  /// cut     of the body of all variables
  /// mine    what this replica holds, `times` in turn
  /// whole   on rank 0: memory for `times` bodies
  void gather_shards(placement::ShardCut const& cut, Span<float const> mine, Span<float> whole, std::size_t times = 1) {
    if (this->id() != 0) return this->exchange(0, std::as_bytes(mine), {});
    each_shard(cut, whole, times, [&](Rank rank, Span<float> own, auto&& each_run) {
      if (rank == 0) std::ranges::copy(mine, own.begin());
      else this->exchange(rank, {}, std::as_writable_bytes(own));
      each_run([](float* in_whole, float* in_own, std::size_t n) { std::copy_n(in_own, n, in_whole); });
    });
  }

  /// The slots of an optimizer whose shard is one range.
  void gather_slots(Span<float const> mine, Span<float> whole, std::size_t slots) {
    gather_shards(one_range(whole, slots), mine, whole, slots);
  }
  void scatter_slots(Span<float> whole, Span<float> mine, std::size_t slots) {
    scatter_shards(one_range(whole, slots), whole, mine, slots);
  }

  /// Brings each replica what it holds, from rank 0. Undoes gather_shards().
  void scatter_shards(placement::ShardCut const& cut, Span<float> whole, Span<float> mine, std::size_t times = 1) {
    if (this->id() != 0) return this->exchange(0, {}, std::as_writable_bytes(mine));
    each_shard(cut, whole, times, [&](Rank rank, Span<float> own, auto&& each_run) {
      each_run([](float* in_whole, float* in_own, std::size_t n) { std::copy_n(in_whole, n, in_own); });
      if (rank == 0) std::ranges::copy(own, mine.begin());
      else this->exchange(rank, std::as_bytes(own), {});
    });
  }

 private:
  placement::Shard shard(Rank rank) const { return {rank, this->num_replicas()}; }
  placement::ShardCut one_range(Span<float> whole, std::size_t slots) const {
    return {slots == 0 ? 0 : whole.size() / slots, this->num_replicas()};
  }

  void set_ends(std::size_t elements) {
    ends_.clear();
    for (Rank rank = 0; rank < this->num_replicas(); ++rank) ends_.push_back(shard(rank).of(elements).end);
  }

  /// Calls f(rank, own, each_run) for each rank: `own` is memory for what it holds, and each_run(g) calls g(place in
  /// whole, place in own, elements) for each run of it.
  template <class F> void each_shard(placement::ShardCut const& cut, Span<float> whole, std::size_t times, F&& f) {
    auto memory = std::vector<float>{};
    for (Rank rank = 0; rank < this->num_replicas(); ++rank) {
      auto const held = cut.held(rank);
      auto const runs = cut.runs_of(rank);
      memory.resize(times * held);
      f(rank, Span<float>{memory}, [&](auto&& copy) {
        for (std::size_t k = 0; k < times; ++k)
          for (auto const& run : runs)
            copy(whole.data() + k * cut.elements() + run.range.begin, memory.data() + k * held + run.at,
                 run.range.size());
      });
    }
  }

  std::vector<std::size_t> ends_;
  ScheduleExecution<typename GatherOf<R>::type, E, float> gather_;
  ScheduleExecution<RecursiveDoublingAllReduce, E, double> summing_;
};

/// Replica under Zero::two and Zero::three: units of a network take turns in its buffers, and their gradients leave
/// during backward.
template <class R, class E> class UnitReplica : public ShardedReplica<R, E> {
  using Base     = ShardedReplica<R, E>;
  using Exchange = detail::UnitExchange<R, E>;

 public:
  UnitReplica(R reduce, E& at) : Base{reduce, at}, whole_{std::move(reduce)} {
    static_assert(
        !requires { requires R::own_thread; },
        "chorale: under ShardedStrategy<Zero::two> and <Zero::three> the thread that computes also sends, as "
        "its buffers are used again in the same step. Use the Reduce without OwnThread");
  }

  /// Connects a copy with this replica. Called when copies are made, and before they compute.
  template <class Model> void connect(Model& model) { model.units().connect(exchange_of(model).link()); }

  /// Computes forward, loss and backward of this replica's share, and reduce-scatters gradients meanwhile. Every
  /// replica calls it.
  template <class Model, class Batch> ValueAndGradient value_and_gradient(Model& model, Batch const& batch) {
    static_assert(!detail::joins<Model>,
                  "chorale: nn::SyncBatchNorm adds up over all replicas in the middle of a step, in which units are on "
                  "their way under ShardedStrategy<Zero::two> and <Zero::three>. Use nn::BatchNorm, or Zero::one");
    connect(model);
    if (!model.units().splits()) this->remember(model.net.variables());
    auto const loss = exchange_of(model).sums().compute(model, batch);
    return {loss, model.gradients()};
  }
  template <class Model, class Batch, class AtEnd = LooksAtEnd>
  ValueAndGradient value_and_gradient_ahead(Model& model, Batch const& batch, AtEnd = {}) {
    return value_and_gradient(model, batch);
  }

  /// Ends the reduction of gradients: adds up their rows, loss and metrics.
  ///
  /// throws    as Replica::all_reduce()
  void reduce_scatter(Gradients& gradients) {
    for (auto& entry : exchanges_)
      if (entry.owner == gradients.owner) entry.exchange->sums().reduce_ends(gradients, Base::alone);
    this->expect_alike(gradients);
  }

  /// Brings every replica the variables of all shards, if it has memory for all.
  template <class Model> void gather_variables(Model& model) {
    model.units().changed();
    if (!model.units().splits()) exchange_of(model).gather_all(model.units().values());
  }

 private:
  struct Entry {
    UnitMemory* memory;
    std::uint64_t owner;
    std::unique_ptr<Exchange> exchange;
  };

  template <class Model> Exchange& exchange_of(Model& model) {
    auto* const memory = &model.units();
    auto const owner   = model.gradients().owner;
    for (auto& entry : exchanges_)
      if (entry.memory == memory && entry.owner == owner) return *entry.exchange;
    std::erase_if(exchanges_, [&](Entry const& entry) { return entry.memory == memory; });  // of a destroyed model
    exchanges_.push_back(
        {memory, owner,
         std::make_unique<Exchange>(whole_, this->endpoint(), *memory, this->next_tags(), this->traffic_)});
    return *exchanges_.back().exchange;
  }

  R whole_;
  std::vector<Entry> exchanges_;  // one for each model
};

/// Synchronous data parallelism in one process or many, in which no replica keeps what another one keeps: ZeRO. Each
/// replica has the optimizer's state of its shard of all variables, and under Zero::two the gradients, under
/// Zero::three the variables of that shard alone, too. A step adds up gradients so that each replica gets the sums of
/// its shard, updates the shard, and brings all replicas the new values: at once or, under Zero::three, when the next
/// step needs them.
///
///   ShardedStrategy<Zero::one>{Cpu::split(4)}                         as MirroredStrategy
///   ShardedStrategy<Zero::two>{Cluster::from_env()}                   as MultiWorkerMirroredStrategy
///   ShardedStrategy<Zero::three>{Cluster::from_env(), Cpu::split(2)}
///
/// keeps   after every step all shards together have the variables of mirrored replicas. Under Reproducible the
///         bits equal one replica's with the whole batch, clipped or not, whatever the number of replicas. A
///         checkpoint has no trace of shards
/// cost    bytes of a ring all-reduce, 2 (P-1)/P of the gradients, and under Zero::three up to half as many
///         again: 3 (P-1)/P less what is still in a buffer when it is needed again. One message between pairs, of 8
///         bytes for each replica, or some 50 times as many where gradients are clipped. Of memory, 1/P of what is in
///         shards; for what units need in a step, see UnitMemory
/// throws  BadArgument without a device, or when the cluster has tasks that this strategy cannot use; PeerLost when a
///         replica fails: in the middle of an update, some shards then have the values of the step before
/// source  Rajbhandari et al., SC 2020
template <Zero zero, Device D = DefaultDevice> class ShardedStrategy {
  static_assert(D::memory == Memory::host, "chorale: ShardedStrategy computes on host memory. Use it over Cpu");

 public:
  using device                             = D;
  using placement                          = std::conditional_t<zero == Zero::three, chorale::placement::Sharded<0>,
                                                                chorale::placement::Mirrored>;  // of the variables
  static constexpr bool reduces_every_step = true, shards_optimizer = true;
  static constexpr bool shards_gradients = zero != Zero::one, shards_variables = zero == Zero::three;
  template <class R> static constexpr bool takes = scatters<R>;
  template <class R, class E>
  using replica_type = std::conditional_t<zero == Zero::one, ShardedReplica<R, E>,
                                          UnitReplica<typename WithoutCut<R>::type, E>>;  // units are cuts themselves

  explicit ShardedStrategy(std::vector<D> devices = D::visible())
      : replicas_{MirroredStrategy<D>{std::move(devices)}} {}
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
    auto const add_up = [&](Span<double> numbers) { replica.add_up(numbers); };
    replica.reduce_scatter(gradients);  // most of them sent during backward
    if constexpr (shards_gradients) {
      model.optimizer.apply_shard(model.units().values(), gradients, add_up);
      replica.gather_variables(model);
    } else {
      auto const variables = model.net.variables();
      model.optimizer.apply_shard(variables.body(), gradients, add_up);
      replica.gather_variables(variables);
    }
  }

 private:
  std::variant<MirroredStrategy<D>, MultiWorkerMirroredStrategy<D>> replicas_;  // devices, ranks and addresses
};

}  // namespace chorale
