// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/model/copy.hpp>
#include <chorale/model/optimizer_state.hpp>
#include <chorale/model/step_reports.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/model/work.hpp>
#include <chorale/nn/engine/instance.hpp>
#include <chorale/nn/engine/learner.hpp>
#include <chorale/nn/engine/term_scores.hpp>
#include <chorale/pjrt/device/pjrt.hpp>
#include <chorale/pjrt/engine.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

/// The outputs of an engine as TermScores reads them.
template <class Net, class Running> struct EngineOutputs {
  static constexpr std::size_t num_outputs = Running::num_outputs;
  static constexpr int ragged_of(std::size_t) { return -1; }

  using Overwritten = std::array<bool, num_outputs>;  // no gradient is written over an output

  Running const* engine;

  float const* output(std::size_t o) const { return engine->output(o).data(); }
  std::size_t size(std::size_t o) const { return engine->output(o).size(); }
};

/// One copy of a compiled network on PJRT devices. A device of several cores computes each step on all of them: each
/// has a part of the rows, and the sums of their gradients. Where the update rule is written in operations as well, a
/// step with its update is one program, and variables stay on the cores; see runs_ahead.
///
///   | variables | gradients | slot 0 | slot 1 | ...        on the host, each laid out as the plan says
///
/// keeps     the host's memory is brought up to date when somebody asks for variables or slots
template <class Net, class Losses, class Optimizer, class Metrics> class Copy : public StepReports {
  using Running                            = Engine<Net, Losses, Optimizer>;
  using Outputs                            = EngineOutputs<Net, Running>;
  using Scoring                            = graph::TermScores<Net, Cpu, Outputs, std::tuple<>, Metrics>;
  static constexpr auto const& plan_       = graph::plan_for<Net>();
  using LossSums                           = typename Running::LossSums;
  static constexpr std::size_t own_losses  = Running::own_losses;  // of several, each is named
  static constexpr std::size_t num_metrics = std::tuple_size_v<Metrics>;

 public:
  static constexpr std::size_t metrics     = own_losses + num_metrics;
  static constexpr int optimizer_slots     = Optimizer::slots;
  static constexpr std::size_t joins_below = 0;
  static constexpr bool joins              = [] {
    for (auto const& call : graph::Traced<Net, AsText>::calls.calls)
      if (call.ops->joined > 0) return true;
    return false;
  }();
  static constexpr NetworkWork work = graph::work_of(graph::Traced<Net, AsText>::calls);

  /// True if a step and its update are one program, which the host starts while the one before still runs.
  static constexpr bool runs_ahead = lowers_update<Optimizer>;

  using Header = std::array<float, plan::header>;

  Copy(Pjrt device, Losses losses, Metrics measures, Optimizer const& rule, Seed seed)
      : held_{std::make_unique<Held>(std::move(device), std::move(losses), std::move(measures), rule, seed)},
        net{held_.get()}, optimizer{rule, held_.get()} {}

  /// Computes loss and gradients of one share of a batch, which may be empty.
  ///
  /// first_row  of this share in the global batch
  /// ready     called once, with the end of all gradients: no bucket leaves before
  /// returns   the loss, a sum over rows; gradients() then holds sums over the same rows
  /// throws    BadArgument when the batch does not fit the network, and where a sum over the rows of all replicas would
  ///           be one over the devices of this rank; pjrt::PluginError when a device fails
  template <class Batch, class Ready>
  Sum<float> value_and_gradient(Batch const& batch, std::size_t first_row, Ready&& ready, Together together = {}) {
    CHORALE_EXPECTS(together.all_reduce == nullptr,
                    "nn::SyncBatchNorm adds up over all rows of a batch, and on PJRT "
                    "devices over those of one rank: use nn::BatchNorm, or TPUStrategy, "
                    "which is one rank");
    auto const g = gradients();
    std::ranges::fill(g.values, 0.0F);
    for (auto& table : g.tables) table.clear();
    report(g, optimizer.now.step, held_->read().values);
    auto loss = 0.0F;
    if (batch.rows != 0) {
      g.trailer().summed() = 1;
      auto const losses =
          held_->engine.gradients(batch, now_of(first_row), optimizer.loss_scale.value, g, num_metrics != 0);
      loss = losses[0];
      write(g.header(), losses, measure(batch, metric::Over::step), batch.rows);
      if (optimizer.checks()) report_non_finite<Cpu>(g, plan::header, g.values.size()), report_non_finite_rows<Cpu>(g);
    }
    ready(g.values.size());
    return {loss, static_cast<std::int64_t>(batch.rows)};
  }

  /// Starts a whole step with its update, and waits for the step before. So the cores always have work.
  ///
  /// order     finish_ahead() before any other function of the copy
  /// batch     with at least one row; it may change after this returns
  /// returns   the header of the step before, if that was in flight
  /// throws    NumericFault, a step late: with NonFinite::stop neither the bad step nor this one has changed a variable
  template <class Batch> std::optional<Header> step_ahead(Batch const& batch) requires runs_ahead {
    auto before        = std::optional<Header>{};
    auto const checked = optimizer.on_non_finite != NonFinite::allow;
    if (optimizer.on_non_finite == NonFinite::skip) before = finish_ahead();  // it may have been left out
    auto const stops = optimizer.on_non_finite == NonFinite::stop && held_->under_way;
    auto started     = held_->engine.update(batch, now_of(batch.first_row), optimizer.moment(),
                                        stops ? &held_->under_way->started : nullptr, checked, num_metrics != 0);
    auto next        = Ahead{std::move(started), measure(batch, metric::Over::step), optimizer.now.step++};
    auto const last  = std::exchange(held_->under_way, std::move(next));
    if (last) before = finish(*last);
    return before;
  }
  bool may_run_ahead() const { return runs_ahead; }
  /// Waits for the step in flight, if there is one, and returns its header.
  std::optional<Header> finish_ahead() {
    auto const last = std::exchange(held_->under_way, std::nullopt);
    return last ? std::optional<Header>{finish(*last)} : std::nullopt;
  }
  /// Forgets the step in flight, because something else has failed.
  void abandon_ahead() noexcept { held_->under_way.reset(); }
  /// True if any replica was asked to end, as far as the last step reports.
  bool was_asked() const { return held_->under_way ? is_asked() : gradients().trailer().asked() != 0; }

  /// Computes loss and metrics, each added up over the rows of the batch.
  template <class Batch> void evaluate(Batch const& batch, std::span<float, plan::header> sums) {
    std::ranges::fill(sums, 0.0F);
    if (batch.rows == 0) return;
    auto const losses = held_->engine.evaluate(batch, num_metrics != 0);
    write(StepHeader<float>{sums}, losses, measure(batch, metric::Over::evaluation), batch.rows);
  }

  /// All outputs of each row, one after another: (B, output_width), valid until the next call.
  template <class Batch> Span<float const> predict(Batch const& batch) {
    auto& engine = held_->engine;
    if (batch.rows == 0) return {};
    engine.predict(batch);
    if constexpr (Running::num_outputs == 1) return engine.output(0);
    auto& all = held_->predicted;
    all.clear();
    for (std::size_t r = 0; r < batch.rows; ++r)
      for (std::size_t o = 0; o < Running::num_outputs; ++o) {
        auto const width = engine.output(o).size() / batch.rows;
        auto const row   = engine.output(o).subspan(r * width, width);
        all.insert(all.end(), row.begin(), row.end());
      }
    return all;
  }

  Gradients gradients() const {
    return {held_->gradients, plan_.variables, PlanView{plan_}.ends(), held_->number, held_->tables};
  }
  std::size_t arena_bytes() const { return held_->arena.size(); }

  /// Moves the gradients to memory that other ranks may read. Called before the first step.
  ///
  /// memory    plan.elements numbers, aligned to 64 bytes; it outlives the copy
  void place_gradients(Span<float> memory) { held_->gradients = memory.first(plan_.elements); }

  // Units of a network do not take turns here.
  UnitMemory& units() const { return *held_->units; }
  bool in_units() const { return false; }

  /// Hash of all bits of all variables.
  std::uint64_t hash() const { return hash_of(held_->read().values); }

  /// True if all cores have the same bits: see CoreMemory::agrees().
  bool cores_agree() { return held_->engine.memory().agrees(); }

  auto& states() requires(!std::is_same_v<typename graph::StatesOfTerms<Metrics>::type, metric::NoStates>) {
    return held_->scores.states();
  }

 private:
  using Measured = std::array<float, num_metrics>;

  /// A step with its update that was started.
  struct Ahead {
    typename Running::Update started;
    Measured measured;
    std::int64_t step;
  };

  /// What does not move when a copy does.
  struct Held {
    Held(Pjrt device, Losses losses, Metrics measures, Optimizer const& rule, Seed of)
        : seed{of}, arena{device.allocate(PlanView{plan_}.arena_bytes(Optimizer::slots))},
          gradients{part(PlanView{plan_}.values(), plan_.elements)}, scores{{}, std::move(measures)},
          engine{std::move(device), std::move(losses), rule, variables(), slots()} {
      auto const all = whole();
      for (std::size_t i = 0; i < plan_.variables.size(); ++i)
        initialize(all[i].value, plan_.variables[i].spec, Random{seed, i});
    }

    Span<float> part(std::size_t first, std::size_t n) const {
      return {reinterpret_cast<float*>(arena.data()) + first, n};
    }
    Span<float> variables() const { return part(0, PlanView{plan_}.values()); }
    Variables whole() const { return {variables(), plan_.variables, plan_.table_elements}; }
    Span<float> slots() const {
      auto const whole = PlanView{plan_};
      return part(whole.values() + whole.elements, static_cast<std::size_t>(Optimizer::slots) * whole.slot_stride());
    }
    /// Variables as they are now, for the host to read: what the cores have stays valid.
    Variables read() {
      engine.memory().bring_back();
      return whole();
    }
    /// Lets the host read and change variables and slots.
    void open() {
      engine.memory().bring_back();
      engine.memory().changed_on_host();
    }

    Seed seed;
    Pjrt::block arena;
    Span<float> gradients;
    Scoring scores;
    Running engine;
    std::optional<Ahead> under_way{};
    std::vector<RowGradients> tables = row_gradients_of(plan_);
    std::uint64_t number             = next_owner();
    std::vector<float> predicted{};
    std::unique_ptr<UnitMemory> units{};  // always null
  };

  /// The variables, which are brought back to the host when they are asked for.
  class Network {
   public:
    explicit Network(Held* held) : held_{held} {}
    Variables variables() const { return all(); }
    Variables all() const {
      held_->open();
      return held_->whole();
    }

   private:
    Held* held_;
  };

  /// The optimizer, whose slots are brought back to the host when they are asked for.
  class State : public OptimizerState<Cpu, Optimizer> {
    using Base = OptimizerState<Cpu, Optimizer>;

   public:
    State(Optimizer const& rule, Held* held) : Base{rule, PlanView{plan_}, held->slots()}, held_{held} {}
    Span<float> slots() const {
      held_->open();
      return Base::slots();
    }

   private:
    Held* held_;
  };

  StepNumbers now_of(std::size_t first_row) const {
    return {.seed = held_->seed, .step = static_cast<std::uint64_t>(optimizer.now.step), .first_row = first_row};
  }

  /// The metrics of the last batch, sums over its rows.
  template <class Batch> Measured measure(Batch const& batch, metric::Over over) {
    if constexpr (num_metrics == 0) return {};
    else {
      auto outputs = Outputs{&held_->engine};
      return held_->scores.metrics(batch, outputs, over).metrics;
    }
  }
  static void write(StepHeader<float> header, LossSums const& losses, Measured const& measured, std::size_t rows) {
    header.loss() = losses[0];
    header.rows() = static_cast<float>(rows);
    for (std::size_t i = 0; i < own_losses; ++i) header.metric(i) = losses[1 + i];
    for (std::size_t i = 0; i < measured.size(); ++i) header.metric(own_losses + i) = measured[i];
  }

  /// Waits for a step, and counts it as apply() would.
  Header finish(Ahead const& last) {
    auto header  = Header{};
    auto ends    = std::array<float, plan::header + plan::trailer>{};  // all of the gradients that is checked
    auto const g = Gradients{ends, plan_.variables, {}, held_->number};
    write(StepHeader<float>{header}, last.started.read(), last.measured, last.started.rows);
    std::ranges::copy(header, ends.begin());
    g.trailer().summed() = 1;
    if (auto const bad = last.started.first_bad(); bad < plan_.variables.size()) report_bad(g, bad);
    try {
      optimizer.settle(g, last.step);
    } catch (...) {
      abandon_ahead();
      throw;
    }
    return header;
  }

  std::unique_ptr<Held> held_;

 public:
  bool in_shards = false;
  Network net;
  State optimizer;
};

}  // namespace chorale::nn::stablehlo
