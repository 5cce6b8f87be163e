// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/model/optimizer_state.hpp>
#include <chorale/model/step.hpp>
#include <chorale/model/step_reports.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/model/work.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/run_time_plan.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::custom {

/// One copy of a model on one device, whose Learner computes: variables, gradients and optimizer slots in one arena,
/// cut by the plan.
///
///   | variables | gradients | slot 0 | slot 1 | ...        each laid out as the plan says
///
/// P       RunTimePlan, or PlanView of a plan that outlives the copy
/// keeps   a step allocates nothing beside what the learner allocates
template <class D, class L, class Optimizer, class P = RunTimePlan> class Copy : public StepReports {
  /// True if the learner computes in memory of the device; one that does not name its memory computes on the host.
  static constexpr bool computes_there = [] {
    if constexpr (requires { typename std::integral_constant<Memory, L::memory>; }) return L::memory == D::memory;
    else return D::memory == Memory::host;
  }();
  static_assert(computes_there,
                "chorale: this model computes on host memory, but the strategy computes on another device. Use a "
                "strategy over Cpu");

 public:
  static constexpr std::size_t metrics = [] {
    if constexpr (requires { L::metric_names; }) return std::size(L::metric_names);
    else return std::size_t{0};
  }();
  static_assert(metrics <= StepHeader<float>::max_metrics, "chorale: a model has at most 14 metrics");

  /// True if the loss is one of loss::per_position: the mean divides by positions.
  static constexpr bool counts_positions = requires { requires L::counts_positions; };

  static constexpr int optimizer_slots = Optimizer::slots;

  /// The smallest end with which `ready` reports that the learner does not add up over all replicas any more in this
  /// step. 0 if it never does.
  static constexpr std::size_t joins_below = [] {
    if constexpr (requires { L::joins_below; }) return L::joins_below;
    else return std::size_t{0};
  }();
  static constexpr bool joins = joins_below != 0;

  /// True if replicas ask one another in the middle of a step, so that one without rows has to answer.
  static constexpr bool answers = requires(L& learner, Pass const& pass) { learner.take_part(pass); };

  /// The axes of several ranks over which the learner is split.
  static constexpr auto axes_asked() requires requires { L::axes_asked(); } { return L::axes_asked(); }

  /// What a step must compute for each row, if the learner knows it, as networks do; otherwise all zeros.
  static constexpr NetworkWork work = [] {
    if constexpr (requires {
                    { L::work } -> std::convertible_to<NetworkWork>;
                  })
      return L::work;
    else return NetworkWork{};
  }();

  Copy(D device, L learner, P plan, Optimizer const& rule, Seed seed)
      : device_{std::move(device)}, learner_{std::move(learner)}, owner_{std::move(plan)}, plan_{owner_}, seed_{seed},
        arena_{device_.allocate(plan_.arena_bytes(Optimizer::slots))}, gradients_{part(plan_.values(), plan_.elements)},
        is_done_(plan_.variables.size()), net{part(0, plan_.values()), plan_},
        optimizer{rule, plan_, slots(plan_.values())} {
    begin();
  }

  /// Makes a copy whose optimizer has the slots of one shard of all variables.
  Copy(D device, L learner, P plan, Optimizer const& rule, Seed seed, placement::Shard shard)
      : device_{std::move(device)}, learner_{std::move(learner)}, owner_{std::move(plan)}, plan_{owner_}, seed_{seed},
        arena_{device_.allocate(sizeof(float) *
                                (plan_.values() + plan_.elements +
                                 static_cast<std::size_t>(Optimizer::slots) * shard.of(plan_.body().size()).size()))},
        gradients_{part(plan_.values(), plan_.elements)}, is_done_(plan_.variables.size()),
        net{part(0, plan_.values()), plan_},
        optimizer{rule, plan_, slots(shard.of(plan_.body().size()).size()), shard} {
    begin();
  }

  /// Makes a copy that keeps a shard of its gradients and, if the units are split, of its variables.
  Copy(D device, L learner, P plan, Optimizer const& rule, Seed seed, std::unique_ptr<UnitMemory> units)
      requires requires { learner.place_units(*units); }
      : device_{std::move(device)}, learner_{std::move(learner)}, owner_{std::move(plan)}, plan_{owner_}, seed_{seed},
        units_{std::move(units)}, arena_{device_.allocate(units_->elements() * sizeof(float))},
        gradients_{(units_->place(part(0, units_->elements())), units_->gradients())}, is_done_(plan_.variables.size()),
        net{units_->variables(), plan_},
        optimizer{rule, plan_, units_->slots(), units_->cut(), units_->shard().rank, {units_->splits(), true}} {
    first_values(*units_, plan_, seed_);
    learner_.place_units(*units_);
  }

  /// Makes a reader of another copy's variables, with its own gradients and learner: its optimizer can only follow().
  ///
  /// keeps     the owner outlives it
  Copy(D device, L learner, Copy const& owner)
      : device_{std::move(device)}, learner_{std::move(learner)}, owner_{owner.owner_}, plan_{owner_},
        seed_{owner.seed_}, arena_{device_.allocate(plan_.bytes_per_step())}, gradients_{part(0, plan_.elements)},
        is_done_(plan_.variables.size()), net{owner.net}, optimizer{owner.optimizer} {
    optimizer.read_only();
    place();
  }

  /// Computes loss and gradients of one share of a batch, which may be empty.
  ///
  /// first_row  of this share in the global batch
  /// ready     called with an end: gradients below it are final, the header first
  /// returns   the loss, a sum over rows; gradients() then holds sums over the same rows
  /// throws    what the learner throws; BadArgument when it contradicts itself: see Step
  template <class Batch, class Ready>
  Sum<float> value_and_gradient(Batch const& batch, std::size_t first_row, Ready&& ready) {
    static_assert(!joins,
                  "chorale: nn::SyncBatchNorm does not run under ParameterServerStrategy, whose workers do not "
                  "wait for one another in a step. Use MultiWorkerMirroredStrategy");
    return value_and_gradient(batch, first_row, std::forward<Ready>(ready), Together{});
  }

  /// Computes loss and gradients for a replica: `together` is for learners that add up over all replicas.
  template <class Batch, class Ready>
  Sum<float> value_and_gradient(Batch const& batch, std::size_t first_row, Ready&& ready, Together together) {
    auto const g = gradients();
    rows_        = batch.rows;
    if constexpr (!continues<Batch>) clear();
    report(g, optimizer.now.step, mirrored());
    auto loss = Sum<float>{};
    if (batch.rows == 0 && units_ != nullptr) take_part();
    if (batch.rows != 0) {
      if (units_ != nullptr) units_->begin(true, optimizer.checks(), finite_on<D>());
      g.trailer().summed() = 1;
      auto const now =
          StepNumbers{.seed = seed_, .step = static_cast<std::uint64_t>(optimizer.now.step), .first_row = first_row};
      auto checked = plan::header;
      auto leave   = Leaving<std::is_base_of_v<LooksAtEnd, std::remove_cvref_t<Ready>>>::of([&](std::size_t end) {
        if (units_ == nullptr && optimizer.checks() && end > checked)
          report_non_finite<D>(g, std::exchange(checked, end), end);
        if (end == plan::header)  // before it may be reduced
          loss = {g.loss(), static_cast<std::int64_t>(counts_positions ? g.counted() : static_cast<float>(batch.rows))};
        ready(end);
      });
      learn(batch, g,
            {.training = true, .now = now, .together = together, .in_shards = in_shards, .frozen = optimizer.frozen()},
            leave);
      if (optimizer.checks()) report_non_finite_rows<D>(g);
      if (units_ != nullptr && units_->bad()) report_bad(g, *units_->bad());
    } else if constexpr (answers) {
      learner_.take_part(
          Pass{.training = true, .together = together, .in_shards = in_shards, .frozen = optimizer.frozen()});
      if (optimizer.checks()) {
        report_non_finite<D>(g, plan::header, g.values.size());
        report_non_finite_rows<D>(g);
      }
    } else if constexpr (joins) {
      learner_.take_part(together, optimizer.frozen());
    }
    ready(g.values.size());
    return loss;
  }

  /// Computes loss and metrics, each added up over the rows of the batch.
  ///
  /// sums      the header of Gradients
  template <class Batch> void evaluate(Batch const& batch, std::span<float, plan::header> sums) {
    std::ranges::fill(sums, 0.0F);
    if (!begin_pass<D>(units_.get(), batch.rows)) return answer();
    auto const header = StepHeader<float>{sums};
    if constexpr (requires { learner_.evaluate(net.all(), batch, header); }) {
      header.rows() = static_cast<float>(batch.rows);
      learner_.evaluate(net.all(), batch, header);
    } else {
      auto const g = gradients();  // memory that is free between steps
      clear();
      auto nothing = LooksAtEnd{};
      learn(batch, g, {.now = {.seed = seed_}}, nothing);
      std::ranges::copy(g.header().all(), sums.begin());
    }
  }

  /// The outputs of the learner: (B, output_width), valid until the next call.
  template <class Batch>
  Span<float const> predict(Batch const& batch)
      requires requires(L& learner, Variables const& v) { learner.predict(v, batch); } {
    if (!begin_pass<D>(units_.get(), batch.rows)) return answer(), Span<float const>{};
    return learner_.predict(net.all(), batch);
  }

  /// The gradient of the loss by input F, for the rows of the last step: (B, F). Of learners that compute it, such as
  /// networks with an nn::Differentiable input. Valid until the next step.
  template <class F>
  Span<float const> gradient_by(F field) const requires requires(L const& learner) { learner.gradient_by(field); } {
    return rows_ == 0 ? Span<float const>{} : learner_.gradient_by(field);
  }

  /// The gradient of the loss of a batch by input F, a sum over the rows, computed as in a training step but without
  /// gradients of variables: (B, F), valid until the next step. For networks whose input is nn::Differentiable<F>.
  ///
  /// keeps     nothing of gradients(): apply the gradients of an earlier step before this call
  template <class F, class Batch>
  Span<float const> gradient_by(F field, Batch const& batch)
      requires requires(L& learner, Pass const& pass) { learner.gradient_by(field, pass, batch); } {
    clear();
    rows_ = batch.rows;
    return rows_ == 0 ? Span<float const>{} : learner_.gradient_by(field, pass_alone(batch), batch);
  }

  /// The outputs of a step that begins, as predict() gives them: (B, output_width), valid until the copy computes again.
  /// A batch without the inputs, such as one of the gradients by these outputs, then continues the step.
  ///
  /// keeps     the inputs live until then
  template <class Batch>
  Span<float const> outputs(Batch const& batch)
      requires requires(L& learner, Pass const& pass) { learner.outputs(pass, batch); } {
    CHORALE_EXPECTS(units_ == nullptr,
                    "outputs(batch) begins a step of 1 replica alone, and under "
                    "ShardedStrategy<Zero::two> and <Zero::three> all replicas make a step together");
    clear();
    return batch.rows == 0 ? Span<float const>{} : learner_.outputs(pass_alone(batch), batch);
  }

  /// Sets the ranks with which a learner that is split over axes of a mesh computes, before the first step: split
  /// variables begin with the values of this rank's part then. The groups outlive the copy.
  void join(AxisGroups axes) requires requires(L& learner) { learner.join(axes); } {
    learner_.join(axes);
    for (std::size_t i = 0; i < plan_.variables.size(); ++i)
      if (auto const& spec = plan_.variables[i].spec; spec.split.parts > 1)
        initialize(net.variables()[i].value, spec, Random{seed_, i},
                   group_along(axes, spec.split.along, spec.split.parts).rank);
  }

  Gradients gradients() const {
    return {gradients_, plan_.variables, plan_.ends(), number_, *tables_, counts_positions};
  }

  /// Memory of a copy whose units take turns.
  UnitMemory& units() const { return *units_; }
  bool in_units() const { return units_ != nullptr; }
  /// Takes part in a step without rows, if units take turns.
  void take_part() { units_->take_part(true, finite_on<D>()); }

  /// Bytes that the copy has allocated, beside what its learner has.
  std::size_t arena_bytes() const { return arena_.size(); }

  /// Moves the gradients to memory that other ranks may read. Called before the first step.
  ///
  /// memory    plan.elements numbers, aligned to 64 bytes; it outlives the copy
  void place_gradients(Span<float> memory) {
    if constexpr (requires { learner_.place_units(*units_); })
      if (units_ != nullptr) return units_->expose(memory), learner_.place_units(*units_);
    CHORALE_EXPECTS(memory.size() >= plan_.elements, "gradients of " + std::to_string(plan_.elements) +
                                                         " elements are placed in memory of " +
                                                         std::to_string(memory.size()));
    gradients_ = memory.first(plan_.elements);
    place();
  }

  /// Hash of all bits of all variables: equal on all replicas after every step. Of a shard, of its bits.
  std::uint64_t hash() const { return hash_of(units_ != nullptr ? units_->values() : net.all().values); }

  /// The states of the learner's metrics, if it has metrics with a state.
  auto& states() requires requires(L& learner) { learner.states(); } { return learner_.states(); }

  L& learner() { return learner_; }
  L const& learner() const { return learner_; }

 private:
  /// Makes a `ready` callback of a function, which LooksAtEnd if nothing leaves before the end of the step.
  template <bool at_end> struct Leaving {
    struct Nothing {};
    template <class F> struct Calling : F, std::conditional_t<at_end, LooksAtEnd, Nothing> {
      using F::operator();
    };
    template <class F> static Calling<F> of(F f) { return {std::move(f), {}}; }
  };

  class Network {
   public:
    Network(Span<float> values, PlanView const& plan) : variables_{values, plan.variables, plan.table_elements} {}
    /// throws  BadArgument when the copy has a shard of them
    auto variables() const {
      expect_whole(variables_);
      return all();
    }
    /// Returns the variables without a check; their values are empty if the copy has a shard.
    auto all() const {
      if constexpr (joins) return JoinedVariables{variables_};
      else return variables_;
    }

   private:
    Variables variables_;
  };

  /// The variables whose copies are equal on all ranks along the data axis. Variables split along it are tables.
  Span<float const> mirrored() const {
    auto const values = net.all().values;
    if constexpr (answers)
      for (auto const& v : plan_.variables)
        if (is_split_along_data(v.spec)) return values.first(plan_.elements);
    return values;
  }

  /// Takes part in a pass over a batch in which this replica has no rows.
  void answer() {
    if constexpr (answers) learner_.take_part(Pass{});
  }

  template <class Batch> static constexpr bool continues = requires { requires L::template continues<Batch>; };

  void clear() {
    std::ranges::fill(gradients_, 0.0F);
    for (auto& table : *tables_) table.clear();
  }

  /// The pass of a training step that this copy computes by itself.
  template <class Batch> Pass pass_alone(Batch const& batch) const {
    static_assert(!joins,
                  "chorale: outputs(batch) and gradient_by(F, batch) compute on one replica alone, and "
                  "nn::SyncBatchNorm adds up over all. Use nn::BatchNorm");
    return {
        .training = true,
        .now    = {.seed = seed_, .step = static_cast<std::uint64_t>(optimizer.now.step), .first_row = batch.first_row},
        .frozen = optimizer.frozen()};
  }

  template <class Batch, class Ready>
  void learn(Batch const& batch, Gradients const& g, Pass const& pass, Ready& ready) {
    std::ranges::fill(is_done_, char{0});
    auto step = Step<Ready>{net.all(), g, pass, batch.rows, metrics, is_done_, ready};
    if constexpr (std::is_void_v<decltype(learner_.learn(step, batch))>) {
      learner_.learn(step, batch);
    } else {
      auto const sum = static_cast<float>(learner_.learn(step, batch));
      if constexpr (metrics == 0) {  // with metrics, only step.loss() has them all
        if (!step.has_loss()) step.loss(sum);
      }
    }
    step.end();
  }

  void begin() {
    if constexpr (requires { learner_.initialize(net.variables(), seed_); })
      learner_.initialize(net.variables(), seed_);
    else
      for (std::size_t i = 0; i < plan_.variables.size(); ++i)
        initialize(net.variables()[i].value, plan_.variables[i].spec, Random{seed_, i});
    place();
  }

  void place() {
    if constexpr (requires { learner_.place(net.variables(), gradients()); })
      learner_.place(net.variables(), gradients());
  }

  Span<float> part(std::size_t first, std::size_t elements) const {
    return {reinterpret_cast<float*>(arena_.data()) + first, elements};
  }
  /// each   elements of a slot
  Span<float> slots(std::size_t each) const {
    return part(plan_.values() + plan_.elements, each * static_cast<std::size_t>(Optimizer::slots));
  }

  D device_;
  L learner_;
  P owner_;
  PlanView plan_;  // of owner_
  Seed seed_;
  std::unique_ptr<UnitMemory> units_;  // null: no units take turns
  typename D::block arena_;
  Span<float> gradients_;
  // Gradients of tables, in the plan's order; elsewhere in memory, as Gradients has a view of them.
  std::unique_ptr<std::vector<RowGradients>> tables_ =
      std::make_unique<std::vector<RowGradients>>(row_gradients_of(plan_));
  std::vector<char> is_done_;            // variables of the step; 1: final
  std::uint64_t number_ = next_owner();  // unique in this program
  std::size_t rows_     = 0;             // of the last step

 public:
  bool in_shards = false;  // true: steps compute one logical shard
  Network net;
  OptimizerState<D, Optimizer> optimizer;
};

}  // namespace chorale::custom
