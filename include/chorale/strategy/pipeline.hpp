// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/nn/pipeline/entry.hpp>
#include <chorale/nn/pipeline/staged.hpp>
#include <chorale/nn/pipeline/timetable.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/step_operations.hpp>
#include <chorale/strategy/memory_plan.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/pipeline/replica.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/strategy/strategy.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// A part of a MeshStrategy: along the axis "stage", ranks compute the stages of a pipeline.
template <PipelineSchedule S> struct Pipelined {};

/// Cuts the network in stages along the axis "stage":
///
///   MeshStrategy{Mesh<Axis<"data", 2>, Axis<"stage", 4>>{cluster}, pipelined<OneForwardOneBackward<8>>()}
template <PipelineSchedule S> Pipelined<S> pipelined() { return {}; }

/// Synchronous training in stages: each rank along the axis "stage" has the variables of its sections of the network,
/// with their optimizer's state, and computes these for each micro-batch as the schedule says. Batches are dealt out
/// along the axis "data", if there is one.
///
/// keeps   variables that several stages use are bit-equal on all of them. Under Reproducible the micro-batches are the
///         logical shards, and the bits equal one replica's with the whole batch, whatever the number of stages. A
///         checkpoint has whole networks, and no trace of stages
/// cost    a message for each value that crosses a cut and each micro-batch, and one back for its gradient; 16 numbers
///         among all stages in each step, and the squares of a few lines where gradients are clipped
/// throws  BadArgument when micro-batches are not the logical shards; PeerLost when a replica fails
/// source  Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., SC 2021; Qi et al., "Zero Bubble Pipeline
///         Parallelism", ICLR 2024
template <class M, PipelineSchedule S> class MeshStrategy<M, Pipelined<S>> {
  static_assert(M::has("stage"),
                "chorale: pipelined<Schedule>() computes stages along an Axis named \"stage\", and "
                "this Mesh has none. Write Mesh<Axis<\"data\", 2>, Axis<\"stage\", 2>>");
  static_assert(M::size == M::size_of("stage") * M::size_of(M::data),
                "chorale: pipelined<Schedule>() takes a Mesh with the axes \"stage\" and \"data\" alone: layers of a "
                "stage are not split over ranks. Remove the other Axis");
  static constexpr int stages = M::size_of("stage");

 public:
  using device        = DefaultDevice;
  using placement     = chorale::placement::Mirrored;  // of a variable, on the ranks with its stage
  using mesh_type     = M;
  using schedule_type = S;
  static constexpr bool reduces_every_step          = true;
  template <class R> static constexpr bool takes    = gives_plain_sums<R> || ShardedReduce<R>;
  template <class R, class E> using replica_type    = PipelineReplica<M, R, E, S>;
  /// The copies of a model: see StrategyTraits.
  template <class Model> using instance_of          = typename nn::Staged<Model>::template instance<device>;
  template <class Model> static constexpr bool cuts = nn::Staged<Model>::cuts;
  /// Refuses a model that cannot be cut.
  template <class Model> static constexpr void refuse() { nn::Staged<Model>::refuse(); }

  explicit MeshStrategy(M mesh, Pipelined<S> const& = {}) : mesh_{std::move(mesh)} {}

  M const& mesh() const { return mesh_; }

  int num_replicas() const { return M::size; }
  int num_shares() const { return M::size_of(M::data); }  // of a batch
  Rank share_of(Rank rank) const { return M::coordinate(rank, M::data); }
  /// True for the ranks with the stage that has the outputs: losses, metrics and predictions are counted there.
  bool counts_rows(Rank rank) const { return pipelines::has_outputs<S>(M::coordinate(rank, "stage"), stages); }
  Group group() const { return mesh_.group(); }
  std::vector<device> local_devices() const { return mesh_.local_devices(); }

  /// Makes the copy of the stage that a rank has.
  template <class Model>
  static instance_of<Model> instantiate(Model const& model, device const& on, Seed seed, Rank rank) {
    return nn::Staged<Model>::template instantiate<S, stages>(model, on, seed, M::coordinate(rank, "stage"));
  }

  /// Lines that ranks compare when they connect: see plan_lines().
  template <class Model> static std::vector<std::string> lines(Model const&) {
    return nn::Staged<Model>::template lines<S, stages, device>();
  }

  /// Returns the memory in which one rank trains its stage of a model, before any of it is allocated. Under
  /// Reproducible, gradients of micro-batches and messages of its sums come on top.
  ///
  /// rows    of the rank's share of a batch
  template <class R, class Model>
  static ReplicaMemory memory_plan(Model const& model, device const& on, std::size_t rows, Rank rank) {
    auto const at = placement_in_data(rank);
    return nn::Staged<Model>::template memory<S, stages>(
        model, on, M::coordinate(rank, "stage"), rows, [&](PlanView const& plan, std::size_t ties) {
          return detail::received_by<R>(plan, at, false, false) + (ShardedReduce<R> ? 0 : ties);
        });
  }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);
    auto const norm = replica.squared_norm(model, gradients);
    if (model.optimizer.clips()) model.optimizer.squared_norm = norm;
    model.optimizer.apply(model.net.variables(), gradients);
  }

  /// Lists nothing: the operations of a pipeline's step depend on the stage.
  template <class R> StepOperations step_operations(PlanView const&, R const&, int) const {
    auto unknown     = StepOperations{};
    unknown.is_known = false;
    return unknown;
  }

 private:
  static chorale::placement::Shard placement_in_data(Rank rank) {
    return {M::coordinate(rank, M::data), M::size_of(M::data)};
  }

  M mesh_;
};

}  // namespace chorale
