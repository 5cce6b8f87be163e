// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/shard_cut.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/collectives.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/reduce/step_operations.hpp>
#include <chorale/strategy/rank_operations.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/runtime/unit_exchange.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// The endpoint of a rank in its node, with its ways to other nodes.
///
/// tags    a Replica has 1, for the ranks of its node; operations of all ranks have 2, and of one shard's ranks 3
template <class E> class NodeEndpoint : public SubEndpoint<E> {
 public:
  static constexpr auto of_all = Tag{2}, of_between = Tag{3};

  /// within   ranks of a node, which are neighbours
  NodeEndpoint(E& at, int within) : SubEndpoint<E>{at, node_of(at, within)}, all{&at}, between{at, alike(at, within)} {}

  E* all;
  SubEndpoint<E> between;  // the ranks with this shard, one of each node

 private:
  static std::vector<Rank> node_of(E const& at, int within) {
    auto ranks = std::vector<Rank>{};
    for (Rank i = 0; i < within; ++i) ranks.push_back(at.rank() / within * within + i);
    return ranks;
  }
  static std::vector<Rank> alike(E const& at, int within) {
    auto ranks = std::vector<Rank>{};
    for (Rank rank = at.rank() % within; rank < at.size(); rank += within) ranks.push_back(rank);
    return ranks;
  }
};

/// The sums of units over all nodes: each is reduce-scattered within its node, and after backward the shards are added
/// up between nodes, all at once.
template <class R, class E> class UnitSums<R, NodeEndpoint<E>> : public UnitSums<R, SubEndpoint<E>> {
  using Base = UnitSums<R, SubEndpoint<E>>;

 public:
  UnitSums(R const& reduce, NodeEndpoint<E>& at, UnitMemory& memory)
      : Base{reduce, at, memory}, node_{&at}, of_copy_{&memory} {}

  void finish_all() {
    Base::finish_all();
    if (node_->between.size() == 1) return;
    shards_.restart(node_->between, of_copy_->shard_of_gradients(), Op::sum, NodeEndpoint<E>::of_between);
    shards_.finish();
  }
  void reduce_ends(Gradients const& gradients, Tag) {
    if (node_->all->size() == 1) return;
    auto both = ends_of(gradients);
    ends_.restart(*node_->all, Span<float>{both}, Op::sum, NodeEndpoint<E>::of_all);
    ends_.finish();
    put_ends(both, gradients);
  }

 private:
  NodeEndpoint<E>* node_;
  UnitMemory* of_copy_;
  ScheduleExecution<R, SubEndpoint<E>, float> shards_;
  ScheduleExecution<RecursiveDoublingAllReduce, E, float> ends_;
};

/// The sums of units over all nodes under Reproducible: along the tree of all ranks.
template <int L, class R, class E>
class UnitSums<Reproducible<L, R>, NodeEndpoint<E>> : public UnitSums<Reproducible<L, R>, E> {
  using Base = UnitSums<Reproducible<L, R>, E>;

 public:
  UnitSums(Reproducible<L, R> const& reduce, NodeEndpoint<E>& at, UnitMemory& memory) : Base{reduce, *at.all, memory} {}

  void reduce_ends(Gradients const& gradients, Tag) { Base::reduce_ends(gradients, NodeEndpoint<E>::of_all); }
};

/// The endpoint of a replica in its node, as a base: it is there before the replica that uses it, and never moves.
template <int within, class E> struct HasNode {
  explicit HasNode(E& at) : node{std::make_unique<NodeEndpoint<E>>(at, within)} {}

  std::unique_ptr<NodeEndpoint<E>> node;
};

/// True if R, or what Reproducible adds up by, has halves that are messages.
template <class R> inline constexpr bool sends_halves = requires { requires Schedule<typename R::scatter>; };
template <int L, class R> inline constexpr bool sends_halves<Reproducible<L, R>> = sends_halves<R>;

}  // namespace detail

/// Replica of a HybridStrategy: its rank is its number among all ranks, its shards are cut for the ranks of its node.
template <int within, class R, class E>
class HybridReplica : private detail::HasNode<within, E>,
                      public UnitReplica<R, detail::NodeEndpoint<E>>,
                      public detail::RankOperations<HybridReplica<within, R, E>, E, Tag{2}> {
  using Node  = detail::HasNode<within, E>;
  using Units = UnitReplica<R, detail::NodeEndpoint<E>>;
  using All   = detail::RankOperations<HybridReplica, E, detail::NodeEndpoint<E>::of_all>;
  friend All;

 public:
  HybridReplica(R by, E& at) : Node{at}, Units{std::move(by), *this->node}, All{at} {}

  // Operations among all ranks, not among the ranks of the node alone.
  using All::id, All::num_replicas, All::all_reduce, All::reduce, All::mean, All::sums;
  using All::exchange, All::all_gather, All::broadcast, All::barrier, All::sent, All::now;
  template <std::same_as<Gradients> G> void all_reduce(G& gradients) {
    Units::all_reduce(gradients);
  }  // which refuses them

  /// Gathers the shards of the first node on rank 0. Other nodes send nothing: its shards make up the whole.
  void gather_shards(placement::ShardCut const& cut, Span<float const> mine, Span<float> whole, std::size_t times = 1) {
    if (id() < within) Units::gather_shards(cut, mine, whole, times);
  }
  /// Scatters the shards from rank 0 to the ranks of the first node, which pass them on to the other nodes.
  void scatter_shards(placement::ShardCut const& cut, Span<float> whole, Span<float> mine, std::size_t times = 1) {
    if (id() < within) Units::scatter_shards(cut, whole, mine, times);
    chorale::broadcast(this->node->between, mine, 0, detail::NodeEndpoint<E>::of_between);
  }
};

/// Synchronous data parallelism with shards within a node and copies between nodes: each rank keeps a shard of what
/// Zero says, cut for the ranks of its node; one rank of each other node has the same shard. Layers are gathered among
/// the ranks of a node alone. What leaves a node are the sums of gradients, once for each shard.
///
///   HybridStrategy<Zero::three, 8>{Cluster::from_env()}                       nodes of 8 workers that are neighbours
///   HybridStrategy<Zero::three, 4>{Cluster::from_env(), Cpu::split(4)}        workers of 4 devices
///   HybridStrategy<Zero::two, 2>{Cpu::split(4)}                               2 x 2 devices of this process
///
/// within    ranks of a node: 0 to within - 1 are the first one
/// keeps     after every step all nodes have the same bits. Under Reproducible these are the bits of one replica with
///           the whole batch, clipped or not. A checkpoint has no trace of shards
/// cost      memory and bytes of ShardedStrategy<zero> on `within` ranks, and between nodes, N of them, 2 (N-1)/N of
///           the bytes of a shard of the gradients, after backward. Under Reproducible each rank gets all sums of
///           a unit from all ranks, as a mirrored replica does
/// throws    BadArgument when the number of ranks is not a multiple of `within`, and as ShardedStrategy
/// source    Zhao et al., "PyTorch FSDP", VLDB 2023: hybrid sharding
template <Zero zero, int within, Device D = DefaultDevice> class HybridStrategy {
  static_assert(
      zero != Zero::one && within >= 1,
      "chorale: HybridStrategy<zero, within> is for Zero::two and Zero::three, within nodes of 1 rank or more. "
      "For Zero::one use ShardedStrategy<Zero::one>");
  using Shards = ShardedStrategy<zero == Zero::one ? Zero::two : zero, D>;

 public:
  using device                             = D;
  using placement                          = typename Shards::placement;  // of the variables, within a node
  static constexpr bool reduces_every_step = true, shards_optimizer = true;
  static constexpr bool shards_gradients = true, shards_variables = Shards::shards_variables;
  template <class R> static constexpr bool takes = scatters<R> && detail::sends_halves<typename WithoutCut<R>::type>;
  template <class R, class E> using replica_type = HybridReplica<within, typename WithoutCut<R>::type, E>;

  explicit HybridStrategy(std::vector<D> devices = D::visible()) : ranks_{std::move(devices)} { check(); }
  explicit HybridStrategy(Cluster cluster) : ranks_{std::move(cluster)} { check(); }
  /// devices   of each worker; all workers have the same number
  HybridStrategy(Cluster cluster, std::vector<D> devices) : ranks_{std::move(cluster), std::move(devices)} { check(); }

  int num_replicas() const { return ranks_.num_replicas(); }
  std::vector<D> local_devices() const { return ranks_.local_devices(); }
  /// Returns all ranks, and which of them this process has. Ranks also compare the size of nodes when they connect.
  Group group() const {
    auto const all = ranks_.group();
    auto meeting   = all.meeting();
    meeting.lines.push_back("shards within nodes of " + std::to_string(within) + " ranks");
    return {all.size(), all.local(), std::move(meeting)};
  }
  /// The shard of a rank, among the shards of its node.
  static chorale::placement::Shard shard_of(Rank rank) { return {rank % within, within}; }

  void update(auto& replica, auto& model, Gradients& gradients) const { ranks_.update(replica, model, gradients); }

  /// Not known: they are of two groups of ranks.
  template <class R> StepOperations step_operations(PlanView const&, R const&, int) const {
    auto unknown     = StepOperations{};
    unknown.is_known = false;
    return unknown;
  }

 private:
  void check() const {
    auto const ranks = num_replicas();
    if (ranks % within == 0) return;
    throw BadArgument{"shards are kept within nodes of " + std::to_string(within) + " ranks, but there are " +
                          std::to_string(ranks) + " ranks.",
                      "a multiple of " + std::to_string(within) + " ranks, or nodes of another size."};
  }

  Shards ranks_;  // devices, ranks and addresses
};

}  // namespace chorale
