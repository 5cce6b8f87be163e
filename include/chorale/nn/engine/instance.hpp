// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class, in one piece: every step kind works on the same arena, executors and optimizer state.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/model/memory.hpp>
#include <chorale/model/optimizer_state.hpp>
#include <chorale/model/step_reports.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/model/work.hpp>
#include <chorale/nn/engine/queued_step.hpp>
#include <chorale/nn/engine/sequential_executor.hpp>
#include <chorale/nn/engine/sliced_executor.hpp>
#include <chorale/nn/engine/work.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/metrics/metric_state.hpp>
#include <chorale/nn/trace/compared.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/replica_digest.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/tensor/sum.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn {

/// One copy of a compiled model on one device: variables, gradients and optimizer slots in one arena, cut by the plan.
///
///   | variables | gradients | slot 0 | slot 1 | ...        each laid out as the plan says
///
/// keeps   a step allocates nothing once its number of rows was seen
template <class D, class Net, class Loss, class Optimizer, class... Metrics> class Instance : public StepReports {
  static constexpr bool in_slices = std::is_same_v<D, Cpu>;
  using Executing = std::conditional_t<in_slices, SlicedExecutor<detail::SequentialTrace<Net>>, Executor<D, Net>>;

 public:
  using network = Net;
  using target  = typename Loss::target;

  static constexpr auto const& plan    = Net::plan;
  static constexpr std::size_t metrics = sizeof...(Metrics);

  /// True if the loss is one of loss::per_position: the mean divides by the rows that count.
  static constexpr bool counts_positions = graph::counts_positions<Loss>;

  static constexpr int optimizer_slots = Optimizer::slots;

  /// The smallest end with which `ready` reports that no layer adds up over all replicas any more in this step. 0 if no
  /// layer does.
  static constexpr std::size_t joins_below = [] {
    constexpr auto first = detail::first_joining(typename Net::nodes{});
    if constexpr (first < plan.ready.size()) return plan.ready[first];
    else return std::size_t{0};
  }();
  static constexpr bool joins = joins_below != 0;

  /// True if the host may enqueue step n + 1 before step n has finished: no metric is computed on the host, and step
  /// n + 1 does not depend on a value read back from step n.
  static constexpr bool runs_ahead = QueuesWork<D> && optim::QueuesUpdates<Optimizer> &&
                                     !optim::scales_loss<Optimizer> && detail::queues_metrics<D, target, Metrics...>;

  /// What a step of this network must compute for each row.
  static constexpr NetworkWork work = graph::work_of(graph::Traced<detail::SequentialTrace<Net>, D>::calls);

  /// Bytes that computing with so many rows takes, beside the arena.
  static ShareMemory planned(D const& device, std::size_t rows) requires in_slices {
    return rows == 0 ? ShareMemory{} : Executing::planned(device, static_cast<int>(rows));
  }

  Instance(D device, Loss loss, Optimizer const& rule, std::tuple<Metrics...> metrics_of, Seed seed)
      : device_{std::move(device)}, loss_{std::move(loss)}, metrics_{std::move(metrics_of)}, states_{metrics_},
        seed_{seed}, arena_{device_.allocate(plan.arena_bytes(Optimizer::slots))}, gradients_{part(1, 1)},
        net{part(0, 1)}, optimizer{rule, plan, part(2, Optimizer::slots)} {
    keep_ends_near_host();
    for (std::size_t i = 0; i < plan.variables.size(); ++i)
      initialize(net.variables()[i].value, plan.variables[i].spec, Random{seed, i});
  }

  /// Makes a copy whose optimizer has the slots of one shard of all variables.
  Instance(D device, Loss loss, Optimizer const& rule, std::tuple<Metrics...> metrics_of, Seed seed,
           placement::Shard shard)
      : device_{std::move(device)}, loss_{std::move(loss)}, metrics_{std::move(metrics_of)}, states_{metrics_},
        seed_{seed}, arena_{device_.allocate((2 * plan.elements + slots_of(shard)) * sizeof(float))},
        gradients_{part(1, 1)}, net{part(0, 1)}, optimizer{rule, plan, {part(2, 0).data(), slots_of(shard)}, shard} {
    for (std::size_t i = 0; i < plan.variables.size(); ++i)
      initialize(net.variables()[i].value, plan.variables[i].spec, Random{seed, i});
  }

  /// Makes a copy that keeps a shard of its gradients and, if the units are split, of its variables.
  Instance(D device, Loss loss, Optimizer const& rule, std::tuple<Metrics...> metrics_of, Seed seed,
           std::unique_ptr<UnitMemory> units)
      : device_{std::move(device)}, loss_{std::move(loss)}, metrics_{std::move(metrics_of)}, states_{metrics_},
        seed_{seed}, units_{std::move(units)}, arena_{device_.allocate(units_->elements() * sizeof(float))},
        gradients_{(units_->place({part(0, 0).data(), units_->elements()}), units_->gradients())},
        net{units_->variables()},
        optimizer{rule, plan, units_->slots(), units_->cut(), units_->shard().rank, {units_->splits(), true}} {
    first_values(*units_, plan, seed);
  }

  /// Makes a reader of another instance's variables, with its own gradients: its optimizer can only follow().
  ///
  /// keeps     the owner outlives it
  Instance(D device, Instance const& owner)
      : device_{std::move(device)}, loss_{owner.loss_}, metrics_{owner.metrics_}, states_{metrics_}, seed_{owner.seed_},
        arena_{device_.allocate(plan.elements * sizeof(float))}, gradients_{part(0, 1)}, net{owner.net.all().values},
        optimizer{owner.optimizer} {
    optimizer.read_only();
    keep_ends_near_host();
  }

  /// Computes forward, loss and backward of one share of a batch, which may be empty.
  ///
  /// batch     x (B, Input), y (B, targets); first_row: of this share in the global batch
  /// ready     called with an end: gradients below it are final, the header first
  /// returns   the loss, a sum over rows; gradients() then holds sums over the same rows
  /// throws    BadArgument when the batch does not fit the network
  template <class Batch, class Ready>
  Sum<float> value_and_gradient(Batch const& batch, std::size_t first_row, Ready&& ready) {
    static_assert(moves_nothing,
                  "chorale: batch normalization does not run under ParameterServerStrategy, where nobody moves its "
                  "statistics. Use MultiWorkerMirroredStrategy; in a loop of your own, call "
                  "replica.value_and_gradient(model, batch)");
    static_assert(!optim::scales_loss<Optimizer>,
                  "chorale: optim::LossScaled does not run under ParameterServerStrategy, whose servers do not know by "
                  "what a worker has scaled its loss. Use MultiWorkerMirroredStrategy; in a loop of your own, call "
                  "replica.value_and_gradient(model, batch)");
    return value_and_gradient(batch, first_row, std::forward<Ready>(ready), Together{});
  }

  /// Computes forward, loss and backward for a replica: `together` is for layers that add up over all replicas.
  template <class Batch, class Ready>
  Sum<float> value_and_gradient(Batch const& batch, std::size_t first_row, Ready&& ready, Together together) {
    auto const g = gradients();
    if (batch.rows == 0) {
      if constexpr (joins) Executing::take_part(together, optimizer.frozen(), zeros_);
      std::memset(g.values.data(), 0, g.values.size_bytes());
      if (units_ != nullptr) take_part();
      mark(g);
      ready(g.values.size());
      return {};
    }
    auto& executor  = executor_for(batch);
    auto const pass = training_pass(first_row, together);
    auto loss       = Sum<float>{0, static_cast<std::int64_t>(batch.rows)};
    if constexpr (QueuesWork<D>) loss.value = queue_gradients(batch, executor, pass, g, ready);
    else loss = compute_gradients(batch, executor, pass, g, ready);
    ready(g.values.size());
    return loss;
  }

  /// The header of Gradients.
  using Header = std::array<float, plan::header>;

  /// Enqueues a whole step of a single replica, with its update, then waits for the step before. So the device always
  /// has work, and the results of a step are known when the next one is in flight. Under NonFinite::skip it waits
  /// first: an update depends on how many were applied before it.
  ///
  /// order     finish_ahead() before any other function of the instance
  /// batch     with at least one row; it may change after this returns
  /// returns   the header of the step before, if that was in flight
  /// throws    as value_and_gradient and apply do, a step late: with NonFinite::stop, neither the bad step nor this one
  ///           has changed a variable
  template <class Batch> std::optional<Header> step_ahead(Batch const& batch) requires runs_ahead {
    auto& executor    = executor_for(batch);
    auto before       = std::optional<Header>{};
    auto const counts = optimizer.on_non_finite == NonFinite::skip;  // whether the step before was one
    if (under_way_ && (counts || under_way_->executor != &executor)) before = finish_ahead();
    auto& step           = executor.step();
    auto const turn      = step.turn();
    auto const bad_stays = optimizer.on_non_finite == NonFinite::stop;
    if (bad_stays && !under_way_) step.forget_bad();
    queued(batch, executor, training_pass(batch.first_row, {}))
        .run_ahead(gradients(), optimizer.checks(), bad_stays, device_.replays(), [&] {
          optimizer.queue(net.variables(), gradients(), static_cast<float>(batch.rows), step.bad());
          optimizer.forget_queued();
        });
    auto const last = std::exchange(under_way_, Ahead{&executor, turn, batch.rows, optimizer.now.step++});
    if (last) before = finish(*last);
    step.wait_copied();
    return before;
  }

  /// True if step_ahead() may be called with these options.
  bool may_run_ahead() const {
    if constexpr (runs_ahead) return optimizer.queues();
    else return false;
  }

  /// Waits for the step in flight, if there is one, and returns its header.
  ///
  /// throws    as step_ahead() does
  std::optional<Header> finish_ahead() {
    auto const last = std::exchange(under_way_, {});
    return last ? std::optional<Header>{finish(*last)} : std::nullopt;
  }

  /// Waits for the step in flight, if there is one, and ignores its results, because something else has failed.
  void abandon_ahead() noexcept {
    if constexpr (runs_ahead) {
      auto const last = std::exchange(under_way_, {});
      try {
        if (last) last->executor->step().wait_ended(last->turn);
      } catch (Error const&) {  // the next call reports it again
      }
    }
  }

  /// Number of kernels and copies in the recorded graph of a step of `rows` rows; 0 if there is none.
  std::size_t nodes(std::size_t rows) const requires QueuesWork<D> {
    for (auto const& executor : executors_)
      if (executor->rows() == static_cast<int>(rows)) return executor->step().nodes();
    return 0;
  }

  /// True if any replica was asked to end, as far as the last step reports.
  bool was_asked() const {
    if (under_way_) return is_asked();
    return gradients().trailer().asked() != 0;
  }

  /// Computes forward and loss, without gradients.
  ///
  /// sums      the header of Gradients: loss, rows, metrics, each added up over the rows of the batch
  template <class Batch> void evaluate(Batch const& batch, std::span<float, plan::header> sums) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    if (!begin_pass<D>(units_.get(), batch.rows)) return;
    auto& executor = executor_for(batch);
    if constexpr (QueuesWork<D>) {
      queued(batch, executor, Pass{.now = {.seed = seed_}}, metric::Over::evaluation).evaluate(sums);
    } else {
      executor.read(0, batch.x.data());
      executor.forward(Pass{.now = {.seed = seed_}});
      write_header(batch, executor, StepHeader<float>{sums}, metric::Over::evaluation);
    }
  }

  /// The outputs of the network: (B, Output), valid until the next call.
  template <class Batch> Span<float const> predict(Batch const& batch) {
    if (!begin_pass<D>(units_.get(), batch.rows)) return {};
    auto& executor = executor_for(batch, Targets::ignored);
    executor.read(0, batch.x.data());
    executor.forward(Pass{.now = {.seed = seed_}});
    executor.settle();
    return {executor.output(0), batch.rows * Net::output::size};
  }

  Gradients gradients() const { return {gradients_, plan.variables, plan.ends(), number_, {}, counts_positions}; }

  /// Memory of a copy whose units take turns.
  UnitMemory& units() const { return *units_; }
  bool in_units() const { return units_ != nullptr; }
  /// Takes part in a step without rows, if units take turns.
  void take_part() { units_->take_part(true, finite_on<D>()); }

  /// Bytes of variables, gradients and slots that the copy has allocated.
  std::size_t arena_bytes() const { return arena_.size(); }

  /// Moves the gradients to memory that other ranks may read. Called before the first step.
  ///
  /// memory    plan.elements numbers, aligned to 64 bytes; it outlives the instance
  void place_gradients(Span<float> memory) {
    if (units_ != nullptr) return units_->expose(memory);
    CHORALE_EXPECTS(executors_.empty() && memory.size() >= plan.elements,
                    "gradients of " + std::to_string(plan.elements) +
                        " elements are placed before the first step, got " + std::to_string(memory.size()));
    gradients_ = memory.first(plan.elements);
  }

  /// Hash of all bits of all variables: equal on all replicas after every step. Of a shard, of its bits.
  std::uint64_t hash() const { return hash_of(units_ != nullptr ? units_->values() : net.all().values); }

  /// The states of the metrics: of the steps that the trainer has counted, and of evaluate().
  auto& states() requires(metric::HasState<Metrics> || ...) { return states_; }

 private:
  static constexpr bool moves_nothing =
      std::ranges::all_of(plan.variables, [](PlannedVariable const& v) { return v.spec.trained(); });

  class Network {
   public:
    explicit Network(Span<float> values) : values_{values} {}
    /// throws  BadArgument when the copy has a shard of them
    auto variables() const {
      expect_whole({values_, plan.variables});
      return all();
    }
    /// Returns all variables without a check; they have no values if the copy has a shard.
    auto all() const {
      auto const every = Variables{values_, plan.variables};
      if constexpr (joins) return JoinedVariables{every};
      else return every;
    }

   private:
    Span<float> values_;
  };

  /// Keeps header and trailer of the gradients near the host, which reads and writes only these in every step.
  void keep_ends_near_host() const {
    if constexpr (requires { device_.keep_near_host(arena_.data(), 1); })
      for (auto const end : {gradients().header().all(), gradients().trailer().all()})
        device_.keep_near_host(reinterpret_cast<std::byte const*>(end.data()), end.size_bytes());
  }

  /// A step in flight: enqueued, and not waited for.
  struct Ahead {
    Executing* executor;
    std::size_t turn, rows;
    std::int64_t step;
  };

  Pass training_pass(std::size_t first_row, Together together) const {
    auto const now =
        StepNumbers{.seed = seed_, .step = static_cast<std::uint64_t>(optimizer.now.step), .first_row = first_row};
    return {.training   = true,
            .now        = now,
            .together   = together,
            .loss_scale = optimizer.loss_scale.value,
            .frozen     = optimizer.frozen()};
  }

  /// Waits for the step, and counts it as apply() would.
  Header finish(Ahead const& last) {
    auto header = Header{};
    if constexpr (runs_ahead) {
      auto& step = last.executor->step();
      step.wait_ended(last.turn);
      std::ranges::copy(step.sums(last.turn), header.begin());
      StepHeader{header}.rows() = static_cast<float>(last.rows);
      auto ends    = std::array<float, plan::header + plan::trailer>{};  // all of the gradients that is checked
      auto const g = Gradients{ends, plan.variables, {}, number_};
      std::ranges::copy(header, ends.begin());
      g.trailer().summed() = 1;
      report_bad_element(g, step.first_bad(last.turn));
      try {
        optimizer.settle(g, last.step);
      } catch (...) {
        abandon_ahead();  // the next step has changed nothing either
        throw;
      }
    }
    return header;
  }

  enum class Targets { needed, ignored };

  static std::size_t slots_of(placement::Shard shard) {
    return static_cast<std::size_t>(Optimizer::slots) * shard.of(plan.body().size()).size();
  }

  Span<float> part(std::size_t first, int parts) const {
    return {reinterpret_cast<float*>(arena_.data()) + first * plan.elements,
            plan.elements * static_cast<std::size_t>(parts)};
  }

  template <class Batch> Executing& executor_for(Batch const& batch, Targets targets = Targets::needed) {
    auto const wanted = batch.rows * Net::input::size;
    CHORALE_EXPECTS(batch.x.size() == wanted, "the network takes rows of " + Net::input::to_string() + ", " +
                                                  std::to_string(wanted) + " numbers for " +
                                                  std::to_string(batch.rows) + " rows, but the batch has " +
                                                  std::to_string(batch.x.size()));
    constexpr auto each = loss::targets_of<Loss>(Net::output::size);
    CHORALE_EXPECTS(targets == Targets::ignored || batch.y.size() == batch.rows * each,
                    "the loss takes " + std::to_string(each) + " targets a row, " + std::to_string(batch.rows * each) +
                        " for " + std::to_string(batch.rows) + " rows, but the batch has " +
                        std::to_string(batch.y.size()));
    return executor_for_rows(static_cast<int>(batch.rows));
  }
  Executing& executor_for_rows(int rows) {
    for (auto const& executor : executors_)
      if (executor->rows() == rows) return *executor;
    auto const v = net.all().values;
    if constexpr (in_slices)
      executors_.push_back(std::make_unique<Executing>(device_, rows, v, gradients_, Span<RowGradients>{},
                                                       slice_threads_, typename Executing::Overwritten{},
                                                       units_.get()));
    else executors_.push_back(std::make_unique<Executing>(rows, v, gradients_, device_));
    return *executors_.back();
  }

  /// Computes forward, loss and backward. Returns the sum of losses, as it was before `ready` let it be reduced.
  template <class Batch, class Ready>
  Sum<float> compute_gradients(Batch const& batch, Executing& executor, Pass const& pass, Gradients const& g,
                               Ready&& ready) {
    std::ranges::fill(g.trailer().all(), 0.0F);
    g.trailer().summed() = 1;
    mark(g);
    if (units_ != nullptr) units_->begin(true, optimizer.checks(), finite_on<D>());
    executor.read(0, batch.x.data());
    executor.forward(pass);
    write_header(batch, executor, g.header(), metric::Over::step);
    if (pass.loss_scale != 1)
      Kernels<D>::multiply(batch.rows * Net::output::size, executor.d_output(0), pass.loss_scale);
    auto const loss = Sum<float>{g.loss(), static_cast<std::int64_t>(g.counted())};
    ready(plan::header);
    auto checked        = plan::header;
    auto const is_final = [&](std::size_t end) {
      if (optimizer.checks()) report_non_finite<D>(g, std::exchange(checked, end), end);
      ready(end);  // now they may be reduced
    };
    if constexpr (in_slices)
      executor.backward(pass, is_final, std::is_base_of_v<LooksAtEnd, std::remove_cvref_t<Ready>>);
    else executor.backward(pass, is_final);
    if (units_ != nullptr && units_->bad()) report_bad(g, *units_->bad());
    return loss;
  }

  /// compute_gradients() on a device that QueuesWork. The trailer, which names the first gradient that is not finite
  /// and has the replica digest, is written only at the end.
  template <class Batch, class Ready>
  float queue_gradients(Batch const& batch, Executing& executor, Pass const& pass, Gradients const& g, Ready&& ready) {
    constexpr bool updates = std::is_same_v<std::remove_cvref_t<Ready>, UpdatesAtEnd>;
    auto step              = queued(batch, executor, pass);
    auto const checks      = optimizer.checks();
    auto const update      = [&] {
      if constexpr (updates) optimizer.queue(net.variables(), g, static_cast<float>(batch.rows), executor.step().bad());
      else optimizer.forget_queued();
    };
    auto const loss =
        device_.replays() ? step.replay(g, checks, update) : step.compute_gradients(g, checks, ready, update);
    report_bad_element(g, executor.step().first_bad());
    if constexpr (updates) report_asked(g);  // updated already, and the only replica
    else mark(g);
    return loss;
  }

  template <class Batch>
  auto queued(Batch const& batch, Executing& executor, Pass const& pass, metric::Over over = metric::Over::step) {
    using States = metric::StatesOf<Metrics...>;
    return QueuedStep<D, Net, Loss, std::tuple<Metrics...>, States, Batch>{executor, loss_, metrics_, states_,
                                                                           batch,    pass,  over};
  }

  /// Writes to the trailer whether this replica was asked to end and, every `compare_every` steps, its digest.
  void mark(Gradients const& g) const { report(g, optimizer.now.step, net.all().values); }

  template <class Batch>
  void write_header(Batch const& batch, Executing& executor, StepHeader<float> header, metric::Over over) {
    constexpr auto width = Net::output::size;
    auto const* const y  = executor.output(0);
    header.loss()        = loss::sum_of<D>(loss_, batch.rows, width, y, batch.y.data(), executor.d_output(0));
    header.rows()        = static_cast<float>(batch.rows);
    if constexpr (counts_positions)
      header.positions() = static_cast<float>(loss_.counted(batch.rows, width, batch.y.data()));
    constexpr auto targets = loss::targets_of<Loss>(width);
    metric::each_of(metrics_, [&]<std::size_t I>(auto const& m) {
      if constexpr (metric::HasState<std::tuple_element_t<I, std::tuple<Metrics...>>>) {
        states_.template add<I>(over, batch.rows, width, y, batch.y.data(), targets);
        header.metric(I) = metric::not_in_header(over);
      } else {
        header.metric(I) = metric::sum_of(m, batch.rows, width, y, batch.y.data(), targets);
      }
    });
  }

  D device_;
  Loss loss_;
  std::tuple<Metrics...> metrics_;
  [[no_unique_address]] metric::StatesOf<Metrics...> states_;
  Seed seed_;
  std::unique_ptr<UnitMemory> units_;  // null: no units take turns
  typename D::block arena_;
  Span<float> gradients_;
  std::uint64_t number_ = next_owner();                // unique in this program
  std::vector<double> zeros_;                          // what a share without rows adds
  std::unique_ptr<SliceThreads> slice_threads_;        // null until needed; never made on a GPU
  std::vector<std::unique_ptr<Executing>> executors_;  // one for each number of rows seen so far
  std::optional<Ahead> under_way_;

 public:
  Network net;
  OptimizerState<D, Optimizer> optimizer;
};

}  // namespace chorale::nn
