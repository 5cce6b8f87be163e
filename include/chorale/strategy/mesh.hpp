// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/halves.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/step_operations.hpp>
#include <chorale/strategy/mesh/mesh.hpp>
#include <chorale/strategy/mesh/replica.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

/// A part of a MeshStrategy: along the data axis, each replica has the optimizer's state of its shard of the variables.
template <Zero zero> struct ShardedAlong {
  static_assert(zero == Zero::one,
                "chorale: MeshStrategy shards the optimizer's state alone. Write "
                "sharded<Zero::one>(\"data\"), or use ShardedStrategy<Zero::two> or <Zero::three>");
  std::string axis;
};

/// Shards the optimizer's state along an axis: MeshStrategy{mesh, sharded<Zero::one>("data")}.
///
/// axis    the one along which batches are dealt out
template <Zero zero> ShardedAlong<zero> sharded(std::string axis) { return {std::move(axis)}; }

/// Synchronous training on a Mesh. Batches are dealt out along its axis "data", and gradients are added up along it;
/// without it, all replicas get the whole batch. Replicas that differ along other axes get the same rows: layers that
/// name such an axis compute parts of a value there, and keep parts of their variables.
///
///   MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tensor", 2>>{Cpu::split(4)}}
///   MeshStrategy{Mesh<Axis<"data", 4>, Axis<"tensor", 2>>{Cluster::from_env()}, sharded<Zero::one>("data")}
///
/// keeps   all copies of a variable, or of one part of it, are bit-equal after every step. Under Reproducible the bits
///         equal one replica's with the whole batch, if the bits of layers do. A checkpoint has whole variables
/// cost    along the data axis the Reduce's; where the mesh has other axes, 4 numbers among the ranks with the
///         same rows in each step. Clipping to a norm: see docs/42-strategies.md
/// throws  BadArgument when a part does not fit the mesh; PeerLost when a replica fails
/// source  jax.sharding.Mesh; Shoeybi et al., "Megatron-LM", 2019
template <class M, class... Parts> class MeshStrategy {
  static_assert(sizeof...(Parts) <= 1, "chorale: MeshStrategy takes a mesh and at most one sharded<Zero>(axis)");

  template <class R, class E> using OfShards = ShardedReplica<R, E>;
  template <class R, class E> using OfWhole  = Replica<R, E>;

  template <class R, class E, bool in_shards> struct ReplicaIn {
    using type = MeshReplica<M, R, E, OfWhole>;
  };
  template <class R, class E> struct ReplicaIn<R, E, true> {
    using type = MeshReplica<M, R, E, OfShards>;
  };

 public:
  using device                             = DefaultDevice;
  using placement                          = chorale::placement::Mirrored;  // of a variable, or of one part of it
  using mesh_type                          = M;
  static constexpr bool reduces_every_step = true, shards_optimizer = sizeof...(Parts) == 1;
  template <class R> static constexpr bool takes = !shards_optimizer || scatters<R>;
  template <class R, class E> using replica_type = typename ReplicaIn<R, E, shards_optimizer>::type;

  explicit MeshStrategy(M mesh, Parts const&... parts) : mesh_{std::move(mesh)} { (check(parts), ...); }

  M const& mesh() const { return mesh_; }

  int num_replicas() const { return M::size; }
  int num_shares() const { return M::size_of(M::data); }  // of a batch
  Rank share_of(Rank rank) const { return M::coordinate(rank, M::data); }
  Group group() const { return mesh_.group(); }
  std::vector<device> local_devices() const { return mesh_.local_devices(); }

  /// Returns the operations of a step. A plan does not know the operations of layers, or of the norm of what is split.
  template <class R> StepOperations step_operations(PlanView const& plan, R const& reduce, int) const {
    auto made     = StepOperations{};
    made.is_known = !shards_optimizer && !is_split(plan.variables);
    if (!made.is_known) return made;
    detail::ReducesGradients<R>::add(made, reduce, plan, num_shares(), false);
    if (num_replicas() != num_shares())
      made.add({.what     = "reports",
                .element  = Element::f64,
                .elements = 4,
                .ranks    = num_replicas() / num_shares(),
                .by       = type_name<RecursiveDoublingAllReduce>(),
                .traffic  = detail::traffic_by<RecursiveDoublingAllReduce>});
    return made;
  }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    auto& optimizer      = model.optimizer;
    auto const variables = model.net.variables();
    auto const of_parts  = is_split(gradients.plan) && optimizer.clips();
    auto const counts    = [&](std::size_t i) { return optimizer.is_in_norm(i); };
    if constexpr (shards_optimizer) {
      replica.reduce_scatter(gradients);
      if (of_parts) optimizer.squared_norm = replica.squared_norm(gradients, optimizer.mine(), counts);
      optimizer.apply_shard(variables.body(), gradients, [&](Span<double> numbers) { replica.add_up(numbers); });
      replica.gather_variables(variables);
    } else {
      replica.all_reduce(gradients);
      if (of_parts) optimizer.squared_norm = replica.squared_norm(gradients, counts);
      optimizer.apply(variables, gradients);
    }
  }

 private:
  static bool is_split(Span<PlannedVariable const> plan) {
    return std::ranges::any_of(plan, [](auto const& v) { return v.spec.split.parts > 1; });
  }

  template <Zero zero> static void check(ShardedAlong<zero> const& part) {
    static_assert(M::has(M::data), "chorale: sharded<Zero>(\"data\") needs an Axis named \"data\" in the Mesh");
    CHORALE_EXPECTS(part.axis == M::data,
                    "the optimizer's state is sharded along the axis \"data\", among replicas "
                    "that have the same variables, got \"" +
                        part.axis + "\"");
  }

  M mesh_;
};

template <class M, class... Parts> MeshStrategy(M, Parts...) -> MeshStrategy<M, Parts...>;

}  // namespace chorale
