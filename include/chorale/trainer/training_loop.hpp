// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/observe/progress.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/trainer/callback_list.hpp>
#include <chorale/trainer/checkpointing.hpp>
#include <chorale/trainer/compare_lines.hpp>
#include <chorale/trainer/epoch_meter.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/model_replicas.hpp>
#include <chorale/trainer/options.hpp>
#include <chorale/trainer/run_checkpoints.hpp>
#include <chorale/trainer/step_trace.hpp>

#include <gsl/util>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// The batches of fit, epoch after epoch. An epoch is a pass over the data, or a number of steps, which begin where the
/// last epoch stopped and continue pass after pass.
template <class Live, class Data> class EpochBatches {
  using BatchShares = decltype(std::declval<Live const&>().distribute(std::declval<Data const&>(), 0));

 public:
  using element = typename Data::element;

  /// steps   of an epoch; 0: an epoch is a pass
  EpochBatches(Live const& live, Data const& data, std::size_t steps, int first_epoch)
      : live_{&live}, data_{&data}, steps_{steps}, pass_{first_epoch} {}

  void begin(int epoch) {
    taken_ = 0;
    if (steps_ == 0) pass_ = epoch;
    if (steps_ == 0 || !shares_) begin_pass();
  }

  /// Moves to a saved position: after `steps` steps of an epoch, and after `batch` batches of a pass.
  void resume(std::size_t steps, int pass, std::size_t batch) {
    taken_ = steps;
    pass_  = pass;
    begin_pass();
    for (; batch_ < batch && shares_->next() != nullptr; ++batch_) {}
  }

  int pass() const { return pass_; }
  std::size_t batch() const { return batch_; }  // of the pass, the next one
  std::size_t taken() const { return taken_; }  // of this epoch

  /// The next batch of this epoch in shares, or null at its end; valid until the next call.
  auto* next() {
    auto* share = steps_ != 0 && taken_ == steps_ ? nullptr : shares_->next();
    if (share == nullptr && taken_ < steps_) {
      ++pass_;
      begin_pass();
      share = shares_->next();  // null again: the data is empty
    }
    taken_ += share != nullptr ? 1 : 0;
    batch_ += share != nullptr ? 1 : 0;
    return share;
  }

 private:
  void begin_pass() {
    shares_.emplace(live_->distribute(*data_, pass_));
    batch_ = 0;
  }

  Live const* live_;
  Data const* data_;
  std::size_t steps_, taken_ = 0;
  int pass_;
  std::size_t batch_ = 0;
  std::optional<BatchShares> shares_;
};

/// Gradients of one replica, accumulated over batches until the next update.
///
/// keeps   sums over rows, with their count, loss and metrics, as for one batch that has all of these rows
class GradientAccumulator {
 public:
  bool empty() const { return sums_.empty(); }
  std::size_t rows() const { return rows_; }  // of the whole batches, of all replicas

  /// Returns the batch with its rows numbered after the rows of the accumulated batches, as if all were one batch.
  template <class Batch> Batch append_to(Batch batch) const {
    batch.first_row += rows_;
    return batch;
  }

  template <class Batch> void add(Gradients const& gradients, Batch const& batch) {
    sums_.resize(gradients.values.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += gradients.values[i];
    header_ += gradients.header().all();
    tables_.resize(gradients.tables.size());
    for (std::size_t i = 0; i < tables_.size(); ++i) tables_[i].append(gradients.tables[i]);
    rows_ += batch.global_rows != 0 ? batch.global_rows : batch.rows;
  }

  /// Adds the accumulated sums to these gradients, and clears them.
  void add_to(Gradients const& gradients) {
    if (empty()) return;
    auto const header = gradients.header().all();
    header_ += header;
    for (std::size_t i = 0; i < sums_.size(); ++i) gradients.values[i] += sums_[i];
    for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<float>(header_.sums[i]);
    header_ = {};
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      gradients.tables[i].add(tables_[i].view());
      tables_[i].clear();
    }
    sums_.clear();
    rows_ = 0;
  }

 private:
  std::vector<float> sums_;      // laid out as gradients
  Totals header_{};              // in double: of many batches, too
  std::vector<RowList> tables_;  // of gradients that are rows
  std::size_t rows_ = 0;         // of the whole batches
};

}  // namespace chorale

namespace chorale::detail {

/// The steps of one fit: hands each replica its share of a batch, and counts what comes of it.
template <class M, class S, class R, class T> class TrainingLoop {
  using Replicas = ModelReplicas<M, S, R, T>;
  using instance = typename Replicas::instance;
  using Shown    = typename Replicas::Shown;
  using Header   = std::array<float, plan::header>;

 public:
  /// throws   BadArgument when the options do not fit the strategy or the reduce
  static void check(FitOptions const& options) {
    check_counts(options);
    CHORALE_EXPECTS(
        options.accumulate >= 1 && (options.accumulate == 1 || gives_plain_sums<R>),
        "an update takes the gradients of at least one batch, and of one under a Reduce that rounds, leaves out "
        "or orders them; got FitOptions::accumulate " +
            std::to_string(options.accumulate));
    CHORALE_EXPECTS(options.deal == Deal::evenly ||
                        (!HasServers<S> && (!ShardedReduce<R> || Live<S, R, T>::template deals_shards<>)),
                    "FitOptions::deal by speed needs replicas that tell each other how fast they are: no parameter "
                    "servers; and under Reproducible a Strategy whose replicas have whole copies of all variables");
    CHORALE_EXPECTS(
        ReducesEveryStep<S> || HasServers<S> || (options.checkpoint_every == 0 && options.asked_to_end == nullptr),
        "FitOptions::checkpoint_every and asked_to_end are not for replicas that learn apart for some "
        "steps; with checkpoint_every 0 there is a checkpoint after each epoch");
  }

  TrainingLoop(Replicas& replicas, Checkpointing<M, S, R, T>& checkpoints, FitOptions const& options)
      : replicas_{replicas}, checkpoints_{checkpoints}, options_{options} {
    for (auto& copy : copies_) {
      copy.optimizer.on_non_finite = options.on_non_finite;
      copy.compare_every           = options.compare_every;
      copy.asked_to_end            = options.asked_to_end;
    }
  }

  /// Makes the steps of one epoch.
  ///
  /// at        where the epoch starts: at its beginning, or in its middle after a checkpoint
  /// line      shows the progress; none, nullptr
  /// returns   loss, metrics, steps and seconds of the epoch
  Epoch run_epoch(auto& batches, TrainingPosition const& at, ProgressLine* line, auto& audience) {
    using Sink                = std::remove_reference_t<decltype(audience)>;
    using Batch               = BatchOf<M, typename std::remove_reference_t<decltype(batches)>::element>;
    auto const start          = std::chrono::steady_clock::now();
    auto done                 = Epoch{.steps = static_cast<std::size_t>(at.steps)};
    auto const skipped_before = copies_[0].optimizer.skipped;
    auto const accumulate     = static_cast<std::size_t>(options_.accumulate);
    if (at.found == 0) replicas_.forget_totals();
    auto const leave = gsl::finally([this] { abandon(); });
    auto held        = PerReplica<GradientAccumulator>(copies_.size());
    auto speeds      = PerReplica<Throughput>(copies_.size());
    auto begin       = time_for<Sink>();
    auto fetched     = begin;
    meter_.begin_epoch(at.found == 0 ? 0 : Scores{M::metric_names, replicas_.totals_of_all()}.rows());
    auto const update = [&](auto& replica, instance& copy, Batch& batch, GradientAccumulator& before, Totals& totals,
                            Throughput& speed) {
      auto parts = StepTrace<Sink>{audience, replica.id(), static_cast<std::uint64_t>(copy.optimizer.now.step), begin};
      parts.end("next batch", Category::input, fetched);
      make_step(replica, copy, batch, before, totals, parts, options_.deal == Deal::by_speed ? &speed : nullptr);
    };
    auto const hold = [](auto& replica, instance& copy, Batch& batch, GradientAccumulator& before) {
      before.add(replica.value_and_gradient(copy, before.append_to(batch)).gradients, batch);
    };
    while (auto* share = batches.next()) {
      auto const is_last = (done.steps + 1) % accumulate == 0;
      fetched            = time_for<Sink>();
      if (line != nullptr || options_.floor || meter_.has_budget()) meter_.look_at(*share, line, options_.floor);
      if (is_last) live_.run(update, copies_, *share, held, replicas_.totals(), speeds);
      else live_.run(hold, copies_, *share, held);
      ++done.steps;
      if (line != nullptr && StepHeader{replicas_.totals()[0].sums}.rows() != 0) {
        auto const shown = Shown{replicas_.scores_here()};
        line->update(done.steps, shown.scores());
      }
      report_step(done.steps, is_last, audience);
      if (is_last) checkpoints_.save_if_due(batches, at.epoch, audience);
      begin = time_for<Sink>();
    }
    CHORALE_EXPECTS(done.steps > 0, "fit got a dataset without a single batch");
    if (done.steps % accumulate != 0) {  // the remaining batches make an update, too
      auto nothing = PerReplica<Batch>(copies_.size());
      live_.run(update, copies_, nothing, held, replicas_.totals(), speeds);
    }
    replicas_.catch_up();
    if constexpr (!HasServers<S>)
      if (options_.deal == Deal::by_speed)
        live_.set_shares(BatchShares::by(live_.slowest_of_shares(live_.gather(speeds))));
    done.scores = replicas_.scores_of_all();
    if constexpr (StrategyTraits<S>::template finishes<Live<S, R, T>, instance>)
      live_.run([this](auto& replica, instance& copy) { live_.strategy().finish(replica, copy); }, copies_);
    done.skipped       = static_cast<std::size_t>(copies_[0].optimizer.skipped - skipped_before);
    done.learning_rate = copies_[0].optimizer.rate();
    done.seconds       = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    meter_.end_epoch(done);
    return done;
  }

 private:
  /// Reports a step to callbacks and sinks. `updated`: its batch made an update, and was not only accumulated.
  void report_step([[maybe_unused]] std::size_t step_of_epoch, [[maybe_unused]] bool updated, auto& audience) {
    using Told = std::remove_reference_t<decltype(audience)>;
    if constexpr (Told::sees_steps)
      audience.step_ended(StepEnd{.step = step_of_epoch, .scores = replicas_.scores_here()});
    if constexpr (Told::sees_scalars && ReducesEveryStep<S>) {  // otherwise these are of one replica only
      if (!updated || options_.summary_every == 0 || replicas_.step() % options_.summary_every != 0) return;
      replicas_.catch_up();
      auto const shown = Shown{Epoch{.scores = replicas_.scores_here(), .learning_rate = copies_[0].optimizer.rate()}};
      audience.take(Scalars{.step = replicas_.step(), .values = shown.all()});
    }
  }

  /// Makes one step of one replica, which the strategy's update() ends.
  ///
  /// totals    of the steps so far: of all replicas if the gradients were reduced, else of this one
  /// speed     gets the rows and seconds of the step; null: not measured
  template <class Sink>
  void make_step(auto& replica, instance& copy, auto const& batch, GradientAccumulator& held, Totals& totals,
                 StepTrace<Sink>& parts, Throughput* speed) const {
    auto const begin = speed != nullptr ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
    replica.begin_step(static_cast<std::uint64_t>(copy.optimizer.now.step));
    if constexpr (RunsAhead<instance> && AppliesSums<S> && !ShardedReduce<R> && !observed<Sink> && !Sink::sees_steps) {
      auto const ahead =
          replica.num_replicas() == 1 && held.empty() && batch.rows != 0 && speed == nullptr && copy.may_run_ahead();
      auto const before = ahead ? copy.step_ahead(batch) : copy.finish_ahead();
      if (before) Replicas::count(totals, copy, *before);
      if (ahead) return;
    }
    using AtEnd            = std::conditional_t<AppliesSums<S>, UpdatesAtEnd, LooksAtEnd>;
    decltype(auto) watched = watch(replica, parts);
    auto result            = [&] {
      if constexpr (ReducesEveryStep<S>)
        if (held.empty()) return replica.value_and_gradient_ahead(copy, batch, AtEnd{});
      return replica.value_and_gradient(copy, held.append_to(batch));
    }();
    if (speed != nullptr) {
      speed->rows += static_cast<double>(batch.rows);
      speed->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    auto const whole = held.rows() + batch.global_rows;
    held.add_to(result.gradients);
    parts.end("gradients", Category::compute);
    auto header     = Header{};
    auto const look = [&] { std::ranges::copy(result.gradients.header().all(), header.begin()); };
    if constexpr (!ReducesEveryStep<S>) look();  // before update() uses their memory
    live_.strategy().update(watched, copy, result.gradients);
    parts.end("update", Category::compute);
    if constexpr (ReducesEveryStep<S>) look();
    if constexpr (ReducesEveryStep<S> && !HasServers<S>)
      if (options_.compare_data && batch.global_rows != 0 && !live_.is_all_local())
        expect_rows(replica, copy, header, whole);
    Replicas::count(totals, copy, header);
  }

  /// throws   Disagreement if all replicas together had another number of rows than the batches that this process reads
  static void expect_rows(auto& replica, instance const& copy, Header& header, std::size_t whole) {
    auto const all = StepHeader{header}.rows(), expected = static_cast<float>(whole);
    if (whole <= 1 << 24 ? all == expected : std::abs(all - expected) <= 1e-6F * expected) return;  // floats
    throw Disagreement{Fault::collective_mismatch,
                       sentence("rank {} takes its share of batches of {} rows, and all ranks together had {} in the "
                                "update to step {}. If processes have data of their own: FitOptions::compare_data = "
                                "false",
                                replica.id(), whole, all, copy.optimizer.now.step),
                       "batches of as many rows in every process, or FitOptions::compare_data = false for processes "
                       "that each have their own."};
  }

  /// Waits for steps that are in flight after an exception has ended an epoch, and ignores their results.
  void abandon() {
    if constexpr (RunsAhead<instance>)
      for (auto& copy : copies_) copy.abandon_ahead();
  }

  Replicas& replicas_;
  Checkpointing<M, S, R, T>& checkpoints_;
  FitOptions const& options_;
  Live<S, R, T>& live_          = replicas_.live();
  PerReplica<instance>& copies_ = replicas_.copies();
  EpochMeter<M, typename S::device, Replicas> meter_{replicas_, options_.memory_budget, options_.task_memory_budget};
};

}  // namespace chorale::detail
