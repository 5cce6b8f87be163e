// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/observe/progress.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/trainer/callback_list.hpp>
#include <chorale/trainer/checkpointing.hpp>
#include <chorale/trainer/compare_lines.hpp>
#include <chorale/trainer/data_mismatch.hpp>
#include <chorale/trainer/epoch_batches.hpp>
#include <chorale/trainer/fit_lines.hpp>
#include <chorale/trainer/gradient_accumulator.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/options.hpp>
#include <chorale/trainer/run_checkpoints.hpp>
#include <chorale/trainer/step_trace.hpp>

#include <gsl/util>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::detail {

template <class M, class S, class R, class T>
class Fitting;

/// The part of a Trainer that trains: replicas, and the loop over epochs, batches and checkpoints.
template <class M, class S, class R, class T>
class TrainingLoop : public Checkpointed<M, S, R, T> {
  using Base = Checkpointed<M, S, R, T>;

 protected:
  using Base::copies_, Base::live_, Base::totals_;
  using Base::catch_up, Base::count, Base::forget_totals, Base::only_serves;
  using Base::look_after, Base::resume, Base::save_after;
  using typename Base::Shown;

 public:
  using typename Base::Batch, typename Base::instance;
  using Base::Base, Base::step;

  /// Passes over the data and updates the variables after every batch.
  ///
  /// train      a dataset of batches; the last one may be smaller, and need not divide by the replicas. The same in
  ///            every process of the job, which all call fit; the chief shows the progress
  /// callbacks  callbacks and sinks, which are told how it goes in this order. See Callback, Sink
  /// returns    loss, metrics, steps and seconds of each epoch that was trained; none, and a line in the log of the
  ///            checkpoints that says so, when the run that they are of is complete
  /// throws     NumericFault when the loss or a gradient is not finite, unless on_non_finite allows it, and, at the
  ///            latest when fit ends, when copies of a variable have drifted apart; Disagreement, on all ranks alike, when
  ///            options or what the dataset says of itself differ between processes; BadArgument when a batch does not fit
  ///            the model, the data is empty, or another thread uses this trainer; what the dataset and the callbacks
  ///            throw. The variables are then those of the step before. Preempted when one of the ranks was asked to end:
  ///            a checkpoint was saved
  template <Dataset Data, class... Callbacks>
  History fit(Data const& train, FitOptions const& options = {}, Callbacks&&... callbacks) {
    auto const mine = live_.hold();
    auto history    = History{};
    if (only_serves()) return history;
    check(options);
    if constexpr (!HasServers<S>)
      if (!live_.is_all_local())
        with_same_data([&] { expect_same_lines(live_, copies_.size(), fit_lines(train, options)); },
                       [] { return std::string{"in fit, before its first batch"}; });
    auto audience = CallbackList<Fitting<M, S, R, T>, std::remove_reference_t<Callbacks>...>{
        static_cast<Fitting<M, S, R, T>&>(*this), callbacks...};
    for (auto& copy : copies_) {
      copy.optimizer.on_non_finite = options.on_non_finite;
      copy.compare_every           = options.compare_every;
      copy.asked_to_end            = options.asked_to_end;
    }
    auto line    = ProgressLine{};
    auto batches = EpochBatches{live_, train, options.steps_per_epoch, options.initial_epoch};
    auto saved   = std::optional<RunCheckpoints>{};                        // in the process that writes
    if (!options.checkpoints.folder.empty() && live_.is_chief())
      saved.emplace(options.checkpoints, live_.num_replicas(), std::to_string(M::plan.hash)).say_goes_on();
    stopped_ = false;
    audience.fit_begins();
    auto at = resume(saved, options, audience.states());
    if (at.found != 0) audience.resumed();
    if (at.found != 0 && saved && (stopped_ || at.epoch >= options.epochs))
      saved->say_nothing_left(static_cast<int>(at.epoch), options.epochs);
    for (auto epoch = static_cast<int>(at.epoch); epoch < options.epochs && !stopped_; at = {.epoch = ++epoch}) {
      bool const shown_here = options.show == Show::progress && live_.is_chief();
      if (shown_here)
        line.begin_epoch(epoch + 1, options.epochs, options.steps_per_epoch != 0 ? options.steps_per_epoch : train.size());
      for (auto& copy : copies_) copy.optimizer.now.epoch = epoch;
      audience.epoch_begins(epoch);
      if (at.found != 0) batches.resume(static_cast<std::size_t>(at.steps), static_cast<int>(at.pass),
                                        static_cast<std::size_t>(at.batch));
      else batches.begin(epoch);
      history.push_back(with_same_data(
          [&] { return run_epoch(batches, at, options, saved, shown_here ? &line : nullptr, audience); },
          [&] { return "in fit, at batch " + std::to_string(batches.taken()) + " of epoch " +
                       std::to_string(epoch + 1); }));
      audience.epoch_ended(epoch, history.back());
      auto const shown = Shown{history.back()};
      audience.take(Scalars{.step = step(), .values = shown.all()});
      if (shown_here) line.end_epoch(shown.scores());
      auto const is_last = stopped_ || epoch + 1 == options.epochs;
      if (is_last && saved) saved->finish();                               // else it might be skipped for an older one
      if (options.checkpoint_every == 0 || is_last)
        with_same_data([&] { save_after(epoch, options, batches, saved, audience); },
                       [&] { return "in fit, after epoch " + std::to_string(epoch + 1); });
    }
    with_same_data([&] { this->expect_equal_copies(); }, [] { return std::string{"at the end of fit"}; });
    if (saved) {
      saved->finish();
      saved->say_ended({.epochs = static_cast<std::uint64_t>(options.epochs),
                        .step   = static_cast<std::uint64_t>(copies_[0].optimizer.now.step)});
    }
    audience.fit_ended(history);
    return history;
  }

  /// Ends fit after this epoch. Every process calls it, or none.
  void stop() { stopped_ = true; }

 private:
  using Header = std::array<float, plan::header>;

  static void check(FitOptions const& options) {
    check_counts(options);
    CHORALE_EXPECTS(options.accumulate >= 1 && (options.accumulate == 1 || gives_plain_sums<R>),
                    "an update takes the gradients of at least one batch, and of one under a Reduce that rounds, leaves out "
                    "or orders them; got FitOptions::accumulate " + std::to_string(options.accumulate));
    CHORALE_EXPECTS(options.deal == Deal::evenly || (!HasServers<S> && !sharded<R>),
                    "FitOptions::deal by speed needs replicas that tell each other how fast they are, and a Reduce "
                    "without logical shards: no parameter servers, and not Reproducible");
    CHORALE_EXPECTS(ReducesEveryStep<S> || HasServers<S> ||
                        (options.checkpoint_every == 0 && options.asked_to_end == nullptr),
                    "FitOptions::checkpoint_every and asked_to_end are not for replicas that learn apart for some "
                    "steps; with checkpoint_every 0 there is a checkpoint after each epoch");
  }

  /// at    where this epoch goes on; at its beginning, or in its middle after a checkpoint
  Epoch run_epoch(auto& batches, TrainingPosition const& at, FitOptions const& options,
                  std::optional<RunCheckpoints>& saved, ProgressLine* line, auto& audience) {
    using Sink       = std::remove_reference_t<decltype(audience)>;
    auto const start = std::chrono::steady_clock::now();
    auto done        = Epoch{.steps = static_cast<std::size_t>(at.steps)};
    auto const skipped_before = copies_[0].optimizer.skipped;
    auto const accumulate     = static_cast<std::size_t>(options.accumulate);
    if (at.found == 0) forget_totals();
    auto const leave = gsl::finally([this] { abandon(); });
    auto held         = PerReplica<GradientAccumulator>(copies_.size());
    auto speeds       = PerReplica<Throughput>(copies_.size());
    auto begin        = time_for<Sink>();
    auto fetched      = begin;
    auto const update = [&](auto& replica, instance& copy, Batch& batch, GradientAccumulator& before, Totals& totals,
                            Throughput& speed) {
      auto parts = StepTrace<Sink>{audience, replica.id(), static_cast<std::uint64_t>(copy.optimizer.now.step), begin};
      parts.end("next batch", Category::input, fetched);
      make_step(replica, copy, batch, before, totals, parts, options.deal == Deal::by_speed ? &speed : nullptr);
    };
    auto const hold = [](auto& replica, instance& copy, Batch& batch, GradientAccumulator& before) {
      before.add(replica.value_and_gradient(copy, before.append_to(batch)).gradients, batch);
    };
    while (auto* share = batches.next()) {
      auto const is_last = (done.steps + 1) % accumulate == 0;
      fetched            = time_for<Sink>();
      if (is_last) live_.run(update, copies_, *share, held, totals_, speeds);
      else live_.run(hold, copies_, *share, held);
      ++done.steps;
      if (line != nullptr && totals_[0].sums[plan::rows_at] != 0) {
        auto const shown = Shown{Epoch{.scores = Scores{M::metric_names, totals_[0]}}};
        line->update(done.steps, shown.scores());
      }
      tell_step(done.steps, options, is_last, audience);
      if (is_last) look_after(batches, at.epoch, options, saved, audience);
      begin = time_for<Sink>();
    }
    CHORALE_EXPECTS(done.steps > 0, "fit got a dataset without a single batch");
    if (done.steps % accumulate != 0) {                                    // what is left is an update too
      auto nothing = PerReplica<Batch>(copies_.size());
      live_.run(update, copies_, nothing, held, totals_, speeds);
    }
    catch_up();
    if constexpr (!HasServers<S>)
      if (options.deal == Deal::by_speed) live_.set_shares(BatchShares::by(live_.gather(speeds)));
    done.scores = Scores{M::metric_names, this->totals_of_all()};
    if constexpr (finishes<S, Live<S, R, T>, instance>)
      live_.run([this](auto& replica, instance& copy) { live_.strategy().finish(replica, copy); }, copies_);
    done.skipped       = copies_[0].optimizer.skipped - skipped_before;
    done.learning_rate = copies_[0].optimizer.rate();
    done.seconds       = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return done;
  }

  /// updated    this batch has made an update, and not been held for a later one
  void tell_step([[maybe_unused]] std::size_t step_of_epoch, [[maybe_unused]] FitOptions const& options,
                 [[maybe_unused]] bool updated, auto& audience) {
    using Told = std::remove_reference_t<decltype(audience)>;
    if constexpr (Told::sees_steps)
      audience.step_ended(StepEnd{.step = step_of_epoch, .scores = Scores{M::metric_names, totals_[0]}});
    if constexpr (Told::sees_scalars && ReducesEveryStep<S>) {             // elsewhere one replica's are not those of all
      if (!updated || options.summary_every == 0 || step() % options.summary_every != 0) return;
      catch_up();
      auto const shown = Shown{Epoch{.scores        = Scores{M::metric_names, totals_[0]},
                                     .learning_rate = copies_[0].optimizer.rate()}};
      audience.take(Scalars{.step = step(), .values = shown.all()});
    }
  }

  /// One step of one replica: the strategy says how it ends.
  ///
  /// totals    of the steps so far: of all replicas where the gradients were reduced, else of this one
  /// speed     where somebody wants to know it
  template <class Sink>
  void make_step(auto& replica, instance& copy, Batch const& batch, GradientAccumulator& held, Totals& totals,
                 StepTrace<Sink>& parts, Throughput* speed) const {
    auto const begin = speed != nullptr ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
    replica.begin_step(static_cast<std::uint64_t>(copy.optimizer.now.step));
    if constexpr (RunsAhead<instance> && AppliesSums<S> && !sharded<R> && !observed<Sink> && !Sink::sees_steps) {
      auto const ahead  = replica.num_replicas() == 1 && held.empty() && batch.rows != 0 && speed == nullptr &&
                          copy.may_run_ahead();
      auto const before = ahead ? copy.step_ahead(batch) : copy.finish_ahead();
      if (before) count(totals, copy, *before);
      if (ahead) return;
    }
    using AtEnd = std::conditional_t<AppliesSums<S>, UpdatesAtEnd, LooksAtEnd>;
    decltype(auto) watched = watch(replica, parts);
    auto result = [&] {
      if constexpr (ReducesEveryStep<S>)
        if (held.empty()) return replica.value_and_gradient_ahead(copy, batch, AtEnd{});
      return replica.value_and_gradient(copy, held.append_to(batch));
    }();
    if (speed != nullptr) {
      speed->rows += static_cast<double>(batch.rows);
      speed->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    held.add_to(result.gradients);
    parts.end("gradients", Category::compute);
    auto header = Header{};
    auto const look = [&] { std::ranges::copy(result.gradients.values.template first<plan::header>(), header.begin()); };
    if constexpr (!ReducesEveryStep<S>) look();                            // before update() uses their memory
    live_.strategy().update(watched, copy, result.gradients);
    parts.end("update", Category::compute);
    if constexpr (ReducesEveryStep<S>) look();
    count(totals, copy, header);
  }

  /// After what ended an epoch early: nothing is under way.
  void abandon() {
    if constexpr (RunsAhead<instance>)
      for (auto& copy : copies_) copy.abandon_ahead();
  }

  bool stopped_ = false;
};

}  // namespace chorale::detail
