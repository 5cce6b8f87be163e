// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>
#include <chorale/model/copy.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/parameter_groups.hpp>
#include <chorale/nn/engine/compiled.hpp>
#include <chorale/nn/pipeline/cut.hpp>
#include <chorale/nn/pipeline/stage_learner.hpp>
#include <chorale/nn/pipeline/timetable.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/run_time_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale::nn {

namespace graph {

/// What keeps a network from being cut in so many sections: none, if nothing does.
template <class Net, int sections>
inline constexpr CutFlaw cut_flaw = [] {
  constexpr auto const& g = Traced<Net, NoDevice>::calls;
  auto const cut          = cut_of(g, g.cuts, sections);
  return cut.flaw;
}();

}  // namespace graph

/// A model as the stages of a pipeline have it: each a copy with the variables of its sections. Models that cannot be
/// cut are refused.
template <class Model> struct Staged {
  static constexpr bool cuts = false;

  template <class D> using instance = typename Model::template instance<D>;

  static constexpr void refuse() {
    static_assert(sizeof(Model) == 0,
                  "chorale: a pipeline cuts a network that is derived from nn::Graph, and this "
                  "model is none. Put the layers of a Sequential in an nn::Block of a Graph");
  }
  template <PipelineSchedule S, int stages, class D>
  static instance<D> instantiate(Model const& model, D const& device, Seed seed, int) {
    refuse();
    return model.instantiate(device, seed);
  }
  template <PipelineSchedule S, int stages, class D, class Received>
  static ReplicaMemory memory(Model const& model, D const& device, int, std::size_t rows, Received&&) {
    return memory_of(model, rows, device);  // instantiate() refuses the model
  }
  template <PipelineSchedule S, int stages, class D> static std::vector<std::string> lines() { return {}; }
};
// A network derived from nn::Graph.
template <class Net, class Losses, class Optimizer, class Metrics>
struct Staged<CompiledGraph<Net, Losses, Optimizer, Metrics>> {
  using Model                = CompiledGraph<Net, Losses, Optimizer, Metrics>;
  static constexpr bool cuts = true;

  template <class D>
  using instance = custom::Copy<D, graph::StageLearner<Net, D, Losses, Metrics>, Optimizer, RunTimePlan>;

  /// Makes the copy of one stage: the same seed gives variables the bits that they have on one device.
  ///
  /// throws  BadArgument when a variable that several sections share lets stages wait for one another
  template <PipelineSchedule S, int stages, class D>
  static instance<D> instantiate(Model const& model, D const& device, Seed seed, int stage) {
    static_assert(pipelines::Timetable<S, stages>::ticks > 0);  // it is checked
    constexpr auto flaw = graph::cut_flaw<Net, stages * S::chunks>;
    if constexpr (graph::report_cut<flaw>()) {
      auto const whole = graph::whole_of<Net, D>();
      auto ends        = ends_of<S, stages, D>();
      auto ties        = pipelines::Ties{};
      for (std::size_t v = 0; v < whole.variables.size(); ++v) {
        auto const users = graph::users_of(whole, ends, static_cast<int>(v));
        for (std::size_t i = 1; i < users.size(); ++i) ties.push_back({users[i - 1], users[i]});
      }
      if (auto const found = pipelines::check<S>(stages, ties); found.flaw != pipelines::Flaw::none)
        throw BadArgument{
            "variables that several sections share let stages wait for one another: gradients by weights "
            "of micro-batch " +
                std::to_string(found.micro_batch) + " on stage " + std::to_string(found.stage) +
                " need those of a later section, which come after them.",
            "a schedule whose backward by weights of a later section comes first."};
      auto learner = graph::StageLearner<Net, D, Losses, Metrics>{
          device, model.losses, model.metrics, pipelines::schedule_of<S>(stage, stages), std::move(ends)};
      auto const plan   = RunTimePlan{learner.variables().shapes, false};
      auto const groups = chorale::detail::GroupsOf<Optimizer>{model.optimizer, PlanView{nn::plan_of<Net>}};
      static_cast<void>(groups);  // patterns fit the whole network, or throw
      return {device, std::move(learner), plan, model.optimizer, seed};
    } else {
      throw BadArgument{"this network is not cut.", "fewer stages."};
    }
  }

  /// Memory of the copy of one stage that computes so many rows of a share, before any of it is allocated.
  ///
  /// received  called as received(plan, ties): bytes of messages, of the stage's plan and of sums of shared variables
  template <PipelineSchedule S, int stages, class D, class Received>
  static ReplicaMemory memory(Model const& model, D const& device, int stage, std::size_t rows, Received&& received) {
    if constexpr (graph::report_cut<graph::cut_flaw<Net, stages * S::chunks>>()) {
      [[maybe_unused]] auto const scope = chorale::detail::DeviceScope<D>{device};
      auto const learner                = graph::StageLearner<Net, D, Losses, Metrics>{
          device, model.losses, model.metrics, pipelines::schedule_of<S>(stage, stages), ends_of<S, stages, D>()};
      auto const made = RunTimePlan{learner.variables().shapes};
      auto const plan = PlanView{made};
      return {.parameters  = plan.parameters,
              .variables   = plan.values() * sizeof(float),
              .gradients   = plan.bytes_per_step(),
              .slots       = static_cast<std::size_t>(Optimizer::slots) * plan.values() * sizeof(float),
              .rows        = rows,
              .activations = learner.planned_bytes(plan.variables, rows),
              .received    = received(plan, learner.tie_bytes())};
    } else {
      return {};
    }
  }

  /// What ranks must have alike, besides the network: the schedule, and after which calls it is cut.
  ///
  ///   pipeline schedule OneForwardOneBackward<8>
  ///   pipeline micro-batches 8
  ///   pipeline sections end at calls 3 7 12
  ///   pipeline order 64 entries hash 5290119273
  template <PipelineSchedule S, int stages, class D> static std::vector<std::string> lines() {
    if constexpr (graph::report_cut<graph::cut_flaw<Net, stages * S::chunks>>()) {
      auto calls = std::string{};
      for (auto const end : ends_of<S, stages, D>()) calls += " " + std::to_string(end);
      auto const entries = S::entries(stages);
      auto hash          = Fnv1a<std::uint64_t>{};
      for (auto const& one : entries)
        for (auto const number : {one.tick, one.stage, static_cast<int>(one.work), one.micro_batch, one.chunk})
          hash.add(static_cast<std::uint64_t>(number));
      return {"pipeline schedule " + type_name<S>(), "pipeline micro-batches " + std::to_string(S::micro_batches),
              "pipeline sections end at calls" + calls,
              "pipeline order " + std::to_string(entries.size()) + " entries hash " + std::to_string(hash.value())};
    } else {
      return {};
    }
  }

 private:
  template <PipelineSchedule S, int stages, class D> static std::vector<int> ends_of() {
    auto const named = graph::Traced<Net, graph::NoDevice>::calls.cuts;
    return graph::cut_of(graph::whole_of<Net, D>().g, named, stages * S::chunks).ends;
  }
};

}  // namespace chorale::nn
