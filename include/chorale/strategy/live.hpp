// SPDX-License-Identifier: Apache-2.0
// More than 300 lines: one class, whose operations share replicas, endpoints and threads.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/one_thread.hpp>
#include <chorale/core/out_of_memory.hpp>
#include <chorale/core/text.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/model/model.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/refused_live.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/runtime/distributed_batches.hpp>
#include <chorale/strategy/runtime/replica_threads.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/per_replica.hpp>
#include <chorale/transport/transport.hpp>

#include <gsl/util>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

struct NoHost {};

template <class S, class R, class E> struct ReplicaOf {
  using type = std::remove_pointer_t<decltype(StrategyTraits<S>::template replica_of<R, E>())>;
};

template <class S, class E> struct HostOf {
  using type = NoHost;
};
template <HasServers S, class E> struct HostOf<S, E> {
  using type = typename S::template host_type<E>;
};

template <class D, class E> struct TeamOf {
  using type = ReplicaThreads<D>;
};
template <class D, RunsItsRanks E> struct TeamOf<D, E> {
  using type = InterleavedReplicas<D>;
};

/// Enlarges the stacks of virtual ranks, whose default suffices for an all-reduce, but not for a step of a network.
template <class T> void make_room_for_steps(T& transport) {
  if constexpr (requires { transport.stack_bytes; })
    transport.stack_bytes = std::max(transport.stack_bytes, std::size_t{1} << 20);
  if constexpr (requires { transport.transport; }) make_room_for_steps(transport.transport);
}

}  // namespace detail

/// A strategy whose replicas are connected.
///
///   auto strategy = Live{MirroredStrategy{Cpu::split(4)}, RingAllReduce{}, LocalTransport{}};
template <class S, class R, class T> requires detail::fit_together<S, R, T> class Live<S, R, T> {
 public:
  using device   = typename S::device;
  using endpoint = typename T::endpoint;
  using replica  = typename detail::ReplicaOf<S, R, endpoint>::type;

  /// An error after which nothing was called any more is why the others lose this process.
  ~Live() {
    if (why_.empty()) return;
    try {
      for (auto& at : endpoints_) fail(at, detail::told_text(why_, Fault::peer_lost));
    } catch (...) {  // they are lost already
    }
  }
  Live(S strategy, R reduce, T transport)
      : strategy_{std::move(strategy)}, reduce_{std::move(reduce)}, transport_{std::move(transport)},
        ranks_{chorale::num_ranks(strategy_)}, team_{strategy_.local_devices()} {
    if constexpr (HasServers<S>) S::prepare(transport_);
    detail::make_room_for_steps(transport_);
    connect();
  }

  int num_replicas() const { return strategy_.num_replicas(); }     // in the whole job
  int num_ranks() const { return ranks_; }                          // for which run() calls a step: see num_ranks
  std::size_t num_local_replicas() const { return local_.size(); }  // in this process
  /// Shares of a batch: as many as ranks, unless some of them have the same rows.
  int num_shares() const {
    if constexpr (StrategyTraits<S>::deals_shares) return strategy_.num_shares();
    else return num_ranks();
  }
  /// The share of a batch that a replica of the job has.
  Rank share_of(Rank rank) const {
    if constexpr (StrategyTraits<S>::deals_shares) return strategy_.share_of(rank);
    else return rank;
  }
  /// True if no replica with a smaller rank has the same share: what one of its rows gives is counted there.
  bool counts_rows(Rank rank) const {
    if constexpr (requires { strategy_.counts_rows(rank); }) return strategy_.counts_rows(rank);
    for (Rank before = 0; StrategyTraits<S>::deals_shares && before < rank; ++before)
      if (share_of(before) == share_of(rank)) return false;
    return true;
  }
  bool is_chief() const { return !local_.empty() && local_.front() == 0; }  // the process that writes files
  bool is_all_local() const { return local_.size() == static_cast<std::size_t>(num_ranks()); }
  S const& strategy() const { return strategy_; }
  replica const& local_replica(std::size_t i) const { return replicas_[i]; }

  /// Creates one copy of the model's variables and optimizer state on each replica, bit-equal; one copy for all if the
  /// strategy shares variables.
  template <class Model> auto create(Model const& model, Seed seed = {}) {
    static_assert(ModelOn<Model, device>,
                  "chorale: the model argument is not a Model. It needs batch, metric_names, "
                  "plan, optimizer and instantiate(device, seed). See nn::compile and custom_model");
    static_assert(
        !(detail::keeps_residual<typename detail::operation_of<R, endpoint>::type> && ScalesLoss<Model>),
        "chorale: optim::LossScaled does not fit a Reduce that leaves a part of the gradients for later steps, whose "
        "scale may be another. Use RingAllReduce, or Products::bf16");
    static_assert(
        !shares_variables<S> || HasReaders<Model, device>,
        "chorale: under CentralStorageStrategy replicas read the variables of the first one in place, and this model "
        "has no instantiate_reader(device, owner) for it. Use MirroredStrategy");
    static_assert(!shards_optimizer<S> || HasShards<Model, device>,
                  "chorale: under ShardedStrategy a copy has the optimizer's state of one shard, and this model has no "
                  "instantiate_shard(device, seed, shard) for it. Use MirroredStrategy or MultiWorkerMirroredStrategy");
    static_assert(
        !shards_gradients<S> || !HasShards<Model, device> || HasUnits<Model, device>,
        "chorale: under ShardedStrategy<Zero::two> and <Zero::three> the layers of a network take turns in a few "
        "buffers, and a model without layers reads any variable at any time. Use ShardedStrategy<Zero::one>, or a "
        "network of nn");
    using Copy = InstanceUnder<Model, S>;
    static_assert(
        StrategyTraits<S>::has_mesh || detail::mesh_fits<S, Copy>(),
        "chorale: a layer of this network is split over several ranks along an Axis, and this Strategy has no such "
        "ranks. Use MeshStrategy with a Mesh that has the Axis");
    static_assert(
        !StrategyTraits<S>::has_mesh || detail::mesh_fits<S, Copy>(),
        "chorale: a layer of this network is split along an Axis that the Mesh of this MeshStrategy does not have, or "
        "has with another number of ranks. Give both the same Axis");
    static_assert(
        detail::leaves_data_axis<S, Copy>(),
        "chorale: a layer of this network is split along the axis \"data\", along which batches are dealt out and "
        "gradients are added up, and needs the same rows on all its ranks. Split it along another Axis of the Mesh");
    auto copies = std::vector<Copy>{};
    copies.reserve(team_.size());
    for (std::size_t i = 0; i < team_.size(); ++i) {
      if constexpr (shares_variables<S> && HasReaders<Model, device>)
        copies.push_back(i > 0 ? model.instantiate_reader(team_.device(i), copies[0])
                               : model.instantiate(team_.device(i), seed));
      else if constexpr (shards_gradients<S> && HasUnits<Model, device>) {
        copies.push_back(model.instantiate_units(team_.device(i), seed, shard_of(strategy_, replicas_[i].id()),
                                                 shards_variables<S>));
        replicas_[i].connect(copies.back());
      } else if constexpr (shards_optimizer<S> && HasShards<Model, device>)
        copies.push_back(model.instantiate_shard(team_.device(i), seed, shard_of(strategy_, replicas_[i].id())));
      else if constexpr (StrategyTraits<S>::has_stages)
        copies.push_back(strategy_.instantiate(model, team_.device(i), seed, replicas_[i].id()));
      else copies.push_back(model.instantiate(team_.device(i), seed));
      if constexpr (requires { copies.back().learner().join(&replicas_[i].messages()); })
        copies.back().learner().join(&replicas_[i].messages());
      if constexpr (requires { copies.back().rank; }) copies.back().rank = replicas_[i].id();
      if constexpr (requires { copies.back().join(replicas_[i].axes()); }) copies.back().join(replicas_[i].axes());
      place_gradients(copies.back(), endpoints_[i]);
    }
    placed_ += to_place_;
    to_place_ = 0;
    if constexpr (HasServers<S>)
      host_.begin(strategy_, model, seed, Span<endpoint>{endpoints_}, Span<replica>{replicas_});
    return PerReplica{std::move(copies)};
  }

  /// True if this process has servers and no replica. They serve until all workers have left, or are lost. Meanwhile
  /// run() calls nothing here, every PerReplica is empty, reduce() returns V{} and gather() an empty vector.
  bool only_serves() const { return local_.empty(); }

  /// Ends training: the replicas of this process leave, and its servers serve until all workers have left, or are lost.
  ///
  /// returns   a report from each server of this process
  auto served() requires HasServers<S> {
    auto const mine = hold();
    if constexpr (RunsItsRanks<endpoint>) run_on_all([this](std::size_t i) { replicas_[i].leave(); });
    else
      for (auto& worker : replicas_) worker.leave();
    return host_.wait();
  }

  /// Deals out each global batch of one pass over a dataset to all replicas.
  ///
  /// epoch     number of the pass, 0-based: a dataset that shuffles has a different order in each
  template <Dataset Batches> auto distribute(Batches const& batches, int epoch = 0) const {
    using Given = typename Batches::element;
    if constexpr (requires(Given b) { b.part(0, 1); }) {
      auto stream = batches.stream(static_cast<std::size_t>(epoch));
      return DistributedBatches<decltype(stream), Given>{std::move(stream), num_shares(), local_shares(), shards(),
                                                         shares_};
    } else {
      static_assert(sizeof(Given) == 0, "chorale: distribute takes batches; end the dataset with .batch(n)");
      return std::vector<PerReplica<Given>>{};  // so that the assert is the only error
    }
  }

  /// Deals out each batch of one pass over a dataset among the replicas of this process: together they get all rows,
  /// whatever other processes do.
  ///
  /// epoch     number of the pass, 0-based: a dataset that shuffles has a different order in each
  template <Dataset Batches> auto distribute_here(Batches const& batches, int epoch = 0) const {
    auto here = std::vector<Rank>{};
    while (here.size() < local_.size()) here.push_back(static_cast<Rank>(here.size()));
    auto stream = batches.stream(static_cast<std::size_t>(epoch));
    return DistributedBatches<decltype(stream), typename Batches::element>{
        std::move(stream), static_cast<int>(here.size()), std::move(here), 0};
  }

  /// Sets the shares of replicas from the next distribute() on: all processes set the same. Reproducible keeps its bits.
  void set_shares(BatchShares shares) {
    CHORALE_EXPECTS(shares.even() || deals_shards<> || shards() == 0, "this Strategy deals logical shards out evenly");
    shares_ = std::move(shares);
    deal_shards();
  }
  template <class Self = replica>  // replicas may have unequal shares of shards
  static constexpr bool deals_shards = std::is_same_v<Self, Replica<R, endpoint>> &&
                                       requires(Self& one, std::vector<int> ends) { one.deal_shards(ends); };
  BatchShares const& shares() const { return shares_; }
  /// Returns the speed of each share from the speeds of all replicas: the slowest replica of a share sets its time.
  std::vector<Throughput> slowest_of_shares(std::vector<Throughput> const& speeds) const {
    auto slowest = std::vector<Throughput>(static_cast<std::size_t>(num_shares()));
    for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
      auto& share = slowest[static_cast<std::size_t>(share_of(static_cast<Rank>(rank)))];
      if (speeds[rank].seconds >= share.seconds) share = speeds[rank];
    }
    return slowest;
  }

  /// Calls step(replica, arguments...) on every replica at once, with that replica's arguments.
  ///
  /// returns   PerReplica<result>, or nothing when step returns nothing
  /// throws    BadArgument when another thread uses this object, or a step calls run(). The exception of the first step
  ///           that failed; the other steps end too, and the replicas are connected again. If they cannot be (some are
  ///           in other processes, or gradients are in their SharedMemoryTransport's memory), PeerLost from then on
  template <class Step, class... Args> auto run(Step&& step, PerReplica<Args>&... args) {
    using Result = std::invoke_result_t<Step&, replica&, Args&...>;
    if constexpr (std::is_void_v<Result>) {
      run_on_all([&](std::size_t i) { step(replicas_[i], args[i]...); });
    } else {
      auto results = PerReplica<Result>(team_.size());
      run_on_all([&](std::size_t i) { results[i] = step(replicas_[i], args[i]...); });
      return results;
    }
  }

  /// Ends a step of one replica by the strategy's update(). Every replica calls it, with its own gradients.
  template <class Model> void update(replica& at, Model& model, Gradients& gradients) const {
    strategy_.update(at, model, gradients);
  }

  /// Synchronizes copies that train independently, e.g. at the end of an epoch: then all have the same bits. Does
  /// nothing if they always have. Every process calls it.
  template <class Model> void finish(PerReplica<Model>& copies) {
    static_assert(
        requires(S const& s, replica& at, Model& model) { s.finish(at, model); } ||
            !requires(S& s, replica& at, Model& model) { s.finish(at, model); },
        "chorale: finish(replica, model) of this Strategy is not const, and would not be called");
    if constexpr (requires(S const& s, replica& at, Model& model) { s.finish(at, model); })
      run(
          [this](replica& at, Model& model) {
            if constexpr (HasServers<S>) at.barrier();  // all have made their last update
            strategy_.finish(at, model);
            if constexpr (HasServers<S>) at.barrier();  // and none makes another one
          },
          copies);
  }

  /// Sums one value of each replica of the job: V is a monoid such as Sum, so uneven shares have the right weights.
  ///
  /// order   added up in the order of ranks: the same bits in every process. Every process calls it
  /// keeps   with servers, a lost worker is left out: the others get the sum of their values
  template <class V> V reduce(PerReplica<V> const& values) {
    auto total = V{};
    if constexpr (HasServers<S>)
      for (auto const& value : told(values).values) total += value;
    else
      for (auto const& value : gather(values)) total += value;
    return total;
  }

  /// Returns the values of all replicas of the job, in the order of their ranks. Every process calls it.
  ///
  /// throws  PeerLost when a value is missing
  template <class V> std::vector<V> gather(PerReplica<V> const& values) {
    if constexpr (HasServers<S>) {
      auto all = told(values);
      for (int worker = 0; all.values.size() != static_cast<std::size_t>(num_ranks()) && !only_serves(); ++worker)
        if (std::ranges::count(all.workers, worker) == 0)
          throw PeerLost{worker * strategy_.replicas_per_worker(),
                         sentence("gather got the values of {} of {} replicas: worker {} is lost.", all.values.size(),
                                  num_ranks(), worker),
                         "reduce, which adds up those of the others."};
      return std::move(all.values);
    } else {
      return gathered(values);
    }
  }

  /// Calls f, which every process calls. What is wrong with the files or the memory of this process, outside of a step,
  /// the others throw as well; the group cannot be used afterwards.
  ///
  /// alone   true: the others throw a BadArgument as well, such as a memory budget that is too small here
  template <class F> decltype(auto) telling(F&& f, bool alone = false) {
    why_.clear();
    try {
      return detail::within_memory("to go on", f);
    } catch (std::exception const& error) {
      if (!HasServers<S> && !is_all_local() && !failed_ && is_of_one_process(error, alone)) {
        failed_ = true;
        for (auto& at : endpoints_) fail(at, error);
      } else if (!HasServers<S> && !is_all_local() && !failed_ && !detail::is_a<PeerLost>(error) &&
                 !detail::is_a<Preempted>(error) && !detail::is_a<NumericFault>(error)) {  // which all throw
        why_ = error.what();
      }
      throw;
    }
  }

  /// Frees the addresses on which the ranks of this process listen, or listens again. See chorale::listen().
  void listen(bool on) {
    for (auto& at : endpoints_) chorale::listen(at, on);
  }

  /// Leaves the group for ever: its connections are closed, and whatever reserves this object throws BadArgument.
  void leave() {
    auto const mine = hold();
    left_           = true;
    replicas_.clear();
    endpoints_.clear();
  }

  /// Reserves this object for the calling thread while the result lives: run() in other threads throws BadArgument.
  [[nodiscard]] OneThread::Hold hold() {
    expect_in_job();
    return owner_.hold("Live::run");
  }

  /// throws  BadArgument after leave()
  void expect_in_job() const {
    CHORALE_EXPECTS(!left_, "this object has left its job of " + std::to_string(num_replicas()) +
                                " replicas, which "
                                "goes on elsewhere: use the trainer that retarget returned");
  }

 private:
  /// False for an error that every process may throw by itself, and for one that all are told already.
  static bool is_of_one_process(std::exception const& error, bool alone) {
    auto const fault = fault_of(error);
    if (fault == Fault::bad_file || fault == Fault::file_fault || detail::is_a<OutOfMemory>(error)) return true;
    return alone && fault == Fault::bad_argument;
  }

  template <class V> std::vector<V> gathered(PerReplica<V> const& values) {
    if (is_all_local()) return {values.begin(), values.end()};
    static_assert(std::is_trivially_copyable_v<V>, "chorale: values that other processes get are plain data");
    auto all          = std::vector<V>(static_cast<std::size_t>(num_ranks()));
    auto const counts = std::vector<std::size_t>(all.size(), 1);
    if constexpr (std::is_trivially_copyable_v<V>)
      run_on_all([&](std::size_t i) {
        if (i == 0) return replicas_[i].all_gather(Span<V const>{&values[i], 1}, Span<V>{all}, counts);
        auto own = std::vector<V>(all.size());
        replicas_[i].all_gather(Span<V const>{&values[i], 1}, Span<V>{own}, counts);
      });
    return all;
  }

  /// Values of the replicas of all live workers; empty in a process that only serves.
  template <class V> auto told(PerReplica<V> const& values) requires HasServers<S> {
    static_assert(std::is_trivially_copyable_v<V>, "chorale: values that other processes get are plain data");
    auto const each = static_cast<std::size_t>(strategy_.replicas_per_worker());
    auto all        = std::vector<typename replica::template Told<V>>(std::max<std::size_t>(values.size(), 1));
    if constexpr (std::is_trivially_copyable_v<V>)
      run_on_all([&](std::size_t i) {
        if (i % each == 0) all[i] = replicas_[i].tell_all(Span<V const>{&values[i], each});
      });
    return std::move(all[0]);
  }

  /// Stores gradients in memory that ranks share, if there is any and it has room: ranks then read them in place.
  void place_gradients(auto& copy, endpoint& at) {
    if constexpr (requires {
                    copy.place_gradients(Span<float>{});
                    at.memory();
                  }) {
      auto const free = at.memory().subspan(std::min(placed_, at.memory().size()));
      auto const n    = [&] {
        if constexpr (shards_gradients<S>) return copy.units().exposed();
        else return copy.gradients().values.size();
      }();
      if (free.size() < n * sizeof(float)) return;
      copy.place_gradients({reinterpret_cast<float*>(free.data()), n});
      to_place_ = n * sizeof(float);  // at the same place on all replicas
    }
  }

  void deal_shards() {
    if constexpr (deals_shards<>)
      for (auto& one : replicas_) one.deal_shards(shares_.ends(shards(), num_ranks()));
  }
  static constexpr int shards() {
    if constexpr (ShardedReduce<R>) return R::logical_shards;
    else return 0;
  }

  /// Runs work on all replicas. When a replica throws, the others are released from their waits; then, if all are in
  /// this process, all are connected again, so that a caller that can handle the error can go on. Not if gradients are
  /// stored in the memory of these endpoints, which would be freed with them.
  template <class Work> void run_on_all(Work&& work) {
    auto const mine = hold();
    CHORALE_EXPECTS(!running_,
                    "a step of Live::run called run, reduce or gather: these are for what comes between "
                    "steps");
    running_         = true;
    auto const ended = gsl::finally([this] { running_ = false; });
    if (failed_)
      throw PeerLost{local_.front(),
                     sentence("rank {} was disconnected from the other {} replicas after a step failed", local_.front(),
                              num_ranks() - 1),
                     "make a new Trainer to go on, from a checkpoint if there is one"};
    try {
      run_by_team(work);
    } catch (...) {
      if constexpr (!HasServers<S>) {  // servers go on without a lost worker
        if (is_all_local() && placed_ == 0) connect();
        else failed_ = true;
      }
      throw;
    }
    if constexpr (requires(replica& one) { one.all_met(); })
      for (auto& one : replicas_) one.all_met();
  }

  template <class Work> void run_by_team(Work& work) {
    if constexpr (RunsItsRanks<endpoint>)
      team_.run(endpoints_, work, [this](std::size_t server, auto&& go_on) { this->serve_while(server, go_on); });
    else team_.run(work, [this](std::size_t i, std::exception const& error) { fail(endpoints_[i], error); });
  }
  void serve_while([[maybe_unused]] std::size_t server, [[maybe_unused]] auto& go_on) {
    if constexpr (HasServers<S>) host_.serve_while(server, go_on);
  }

  std::vector<Rank> local_shares() const {
    auto all = local_;
    for (auto& rank : all) rank = share_of(rank);
    return all;
  }

  void connect() {
    if constexpr (requires(replica& one) { one.keep_axes(one.release_axes()); }) {
      auto kept = std::vector<decltype(std::declval<replica&>().release_axes())>{};  // copies have views of them
      for (auto& one : replicas_) kept.push_back(one.release_axes());
      connect_anew();
      for (std::size_t i = 0; i < kept.size(); ++i) replicas_[i].keep_axes(std::move(kept[i]));
    } else {
      connect_anew();
    }
  }

  void connect_anew() {
    replicas_.clear();
    local_.clear();
    auto const group = strategy_.group();
    endpoints_       = transport_.connect(group);
    for (auto& at : endpoints_) {
      if (at.rank() >= num_ranks()) break;  // servers come last
      local_.push_back(at.rank());
      if constexpr (HasServers<S>) replicas_.emplace_back(reduce_, at, num_ranks());
      else replicas_.emplace_back(reduce_, at);
    }
    deal_shards();
  }

  S strategy_;
  R reduce_;
  T transport_;
  std::vector<Rank> local_;  // of the replicas of this process
  std::vector<endpoint> endpoints_;
  std::string why_;                                  // the last error of telling(), if not told
  typename detail::HostOf<S, endpoint>::type host_;  // ends after the replicas have left
  std::vector<replica> replicas_;
  BatchShares shares_;
  OneThread owner_;
  bool running_       = false;             // changed by the owner only
  std::size_t placed_ = 0, to_place_ = 0;  // bytes of shared memory for gradients
  bool left_   = false;
  bool failed_ = false;  // permanently: see run_on_all
  int ranks_;
  typename detail::TeamOf<device, endpoint>::type team_;  // last: its threads use the above
};

}  // namespace chorale
