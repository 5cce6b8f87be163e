// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/checkpoint/reader.hpp>
#include <chorale/checkpoint/weight_map.hpp>
#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/data/stages/int_labels.hpp>
#include <chorale/observe/progress.hpp>
#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/step_time.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/trainer/callback_list.hpp>
#include <chorale/trainer/checkpointing.hpp>
#include <chorale/trainer/compare_lines.hpp>
#include <chorale/trainer/epoch_meter.hpp>
#include <chorale/trainer/evaluation.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/model_replicas.hpp>
#include <chorale/trainer/options.hpp>
#include <chorale/trainer/refused_calls.hpp>
#include <chorale/trainer/refused_trainer.hpp>
#include <chorale/trainer/run_checkpoints.hpp>
#include <chorale/trainer/take_over.hpp>
#include <chorale/trainer/training_loop.hpp>
#include <chorale/trainer/weight_files.hpp>
#include <chorale/trainer/whole_variables.hpp>
#include <chorale/transport/local.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale {

// clang-format off
/// Trains one model under one strategy: Trainer<Model, Strategy, Reduce, Transport>.
///
/// Each parameter answers one question, and each can be changed without touching the other three:
///   Model      what is learned               network, loss, optimizer, metrics
///   Strategy   what ranks hold and wait for  devices, placement of variables, update rule
///   Reduce     how gradients combine         direct, ring, trees, 16 bits on the wire, reproducible, ...
///   Transport  how bytes are sent            threads, shared memory, TCP, MPI
///
/// keeps   after its first step with a number of rows, a step allocates nothing, except under Reproducible
template <class M, class S, class R, class T>
  requires detail::fit_together<S, R, T> && ModelOn<M, typename S::device> && StrategyTraits<S>::template cuts<M>
class Trainer<M, S, R, T> {  // clang-format on
  using Replicas = detail::ModelReplicas<M, S, R, T>;
  using Loop     = detail::TrainingLoop<M, S, R, T>;

 public:
  using instance = typename Replicas::instance;

  /// seed    of the variables' first values and of dropout
  /// budget  of each replica, checked before variables are allocated: see check_budget, and FitOptions::memory_budget
  Trainer(M model, S strategy, R reduce = {}, T transport = {}, Seed seed = {}, MemoryBudget budget = {})
      : replicas_{detail::within_memory("to make a Trainer", [&] {
          return Replicas{std::move(model), std::move(strategy), std::move(reduce), std::move(transport), seed, budget};
        })} {}

  /// Takes over from the copies that processes of another job have brought: see retarget().
  template <class Brought>
  Trainer(M model, S strategy, R reduce, T transport, Seed seed, Brought& brought, Moved* moved)
      : Trainer{std::move(model), std::move(strategy), std::move(reduce), std::move(transport), seed} {
    auto const all = detail::take_over(replicas_, std::type_identity<S>{}, brought);
    if (moved != nullptr) *moved = all;
  }

  /// Trains on the data, and updates the variables after every batch, or after every FitOptions::accumulate batches.
  ///
  /// train      a dataset of batches; the last one may be smaller, and need not divide by the replicas. The same in
  ///            every process of the job, which all call fit; the chief shows the progress
  /// callbacks  callbacks and sinks, called in this order. See Callback, Sink
  /// returns    loss, metrics, steps and seconds of each epoch that was trained; none, with a line in the log of the
  ///            checkpoints, if they belong to a run that is complete
  /// throws     NumericFault if the loss or a gradient is not finite, unless on_non_finite allows it, and, at the end
  ///            of fit at the latest, if copies of a variable have drifted apart; Disagreement, on all ranks alike, if
  ///            options or the dataset's description differ between processes; BadArgument if a batch does not fit the
  ///            model, the data is empty, or another thread uses this trainer; what the dataset and the callbacks
  ///            throw. The variables then are as the step before left them. Preempted if one of the ranks was asked to
  ///            end: a checkpoint was saved, if there is a folder for it
  template <class Data, class... Callbacks> requires detail::TrainsModel<Data, M>
  History fit(Data const& train, FitOptions const& options = {}, Callbacks&&... callbacks) {
    static_cast<void>((sizeof(detail::NamesOf<Callbacks>) + ... + 0));  // refuses names near ours, first of all
    auto const mine = live().hold();
    if (replicas_.only_serves()) return {};
    Loop::check(options);
    if constexpr (!HasServers<S>)
      if (!live().is_all_local())
        detail::with_same_data(
            [&] { detail::expect_same_lines(live(), copies().size(), detail::fit_lines(train, options)); },
            [] { return std::string{"in fit, before its first batch"}; });
    return live().telling([&] { return fit_all(train, options, callbacks...); });
  }

  /// Trains on batches whose labels are of another integer type than int; refuses all other data, in one sentence.
  template <class Data, class... Callbacks>
  History fit(Data const& data, FitOptions const& options = {}, Callbacks&&... callbacks) {
    if constexpr (detail::HasOtherLabels<Data, M>) return fit(data::IntLabels{data}, options, callbacks...);
    else return detail::refuse_batches<M, Data>(), History{};
  }

  /// Trains with default options if what follows the data are callbacks.
  template <class Data, class Second, class... Callbacks> requires(!std::convertible_to<Second, FitOptions const&>)
  History fit(Data const& data, Second&& second, Callbacks&&... callbacks) {
    if constexpr (!Dataset<Data>) detail::refuse_dataset<Data>();
    else if constexpr (detail::is_callback<Second, Trainer>) return fit(data, FitOptions{}, second, callbacks...);
    else detail::refuse_second<Second>();
    return {};
  }

  /// Refuses to train if the trainer is const.
  template <class Data, class... Callbacks> History fit(Data const&, FitOptions const& = {}, Callbacks&&...) const {
    return detail::refuse_const<Data>(), History{};
  }

  /// Ends fit after this epoch. Every process calls it, or none.
  void stop() { stopped_ = true; }

  /// Loss and metrics over data: each row counts once, whatever the batches and replicas. The same in every process.
  ///
  /// keeps   with servers, the rows of a lost worker are missing in rows(); a process that only serves returns, without
  ///         rows, after all workers have left
  template <class Data, class... More> Scores evaluate(Data const& data, More const&...) {
    if constexpr (sizeof...(More) != 0) {
      detail::refuse_more<Data>();
      return {};
    } else if constexpr (detail::HasOtherLabels<Data, M> && !detail::TrainsModel<Data, M>) {
      return evaluate(data::IntLabels{data});
    } else if constexpr (detail::TrainsModel<Data, M>) {
      auto const mine = live().hold();  // else it would end another thread's fit
      return live().telling([&] {
        return detail::with_same_data([&] { return detail::evaluate_all(replicas_, data); },
                                      [] { return std::string{"in evaluate"}; });
      });
    } else {
      detail::refuse_batches<M, Data>();
      return {};
    }
  }
  /// Refuses to evaluate if the trainer is const.
  template <class Data, class... More> Scores evaluate(Data const&, More const&...) const {
    return detail::refuse_const<Data>(), Scores{};
  }

  /// The outputs for each row of data, in order, in every process; targets are ignored. Several outputs of a network
  /// lie one after another, in the order of its nn::outputs.
  ///
  /// keeps   with servers, the replicas of each process compute all rows by themselves: no worker waits for another
  ///         worker, and a lost worker changes nothing. A process that only serves returns, without rows, after all
  ///         workers have left
  template <class Data, class... More> Predictions predict(Data const& data, More const&...) {
    if constexpr (sizeof...(More) != 0) {
      detail::refuse_more<Data>();
      return {};
    } else if constexpr (detail::HasOtherLabels<Data, M> && !detail::AsksModel<Data, M>) {
      return predict(data::IntLabels{data});
    } else if constexpr (!detail::AsksModel<Data, M>) {
      detail::refuse_batches<M, Data>();
      return {};
    } else if constexpr (requires { M::output_width; }) {
      auto const mine = live().hold();
      return live().telling([&] {
        return detail::with_same_data([&] { return detail::predict_all(replicas_, data); },
                                      [] { return std::string{"in predict"}; });
      });
    } else {
      static_assert(sizeof(Data) == 0,
                    "chorale: this model does not predict. Give its learner output_width and "
                    "predict(variables, batch). See docs/60-write-your-own.md");
      return {};
    }
  }

  /// Refuses to predict if the trainer is const.
  template <class Data, class... More> Predictions predict(Data const&, More const&...) const {
    return detail::refuse_const<Data>(), Predictions{};
  }

  /// Writes the variables as one safetensors file: no trace of replicas, no optimizer state. Only the chief writes.
  ///
  /// file      a symbolic link is kept: the file that it points to is replaced
  /// names     names and layouts of another program, for which the file is
  /// throws    BadFile when the file cannot be written, or is a device, a FIFO or a folder; BadArgument when `names` lacks
  ///           a variable. The file is then unchanged
  void save(std::filesystem::path const& file, WeightMap const& names = {}) const {
    static_assert(!shards_variables<S>,
                  "chorale: every replica has a shard of the variables, which save() brings "
                  "together: call it of a Trainer that is not const, in every process");
    live().expect_in_job();
    detail::save_from_here(replicas_, file, names);
  }
  /// Writes the variables where several processes have parts of them: every process calls it.
  void save(std::filesystem::path const& file, WeightMap const& names = {})
      requires(StrategyTraits<S>::has_mesh || shards_variables<S>) {
    auto const mine = live().hold();
    detail::save_from_all(replicas_, file, names);
  }

  /// Reads the variables from a safetensors file into every replica of the job. Only the chief reads.
  ///
  /// names     names and layouts of the program that wrote the file; without it, this network's
  /// throws    BadFile when the file is damaged, or does not fit this network: the first three differences are named, and
  ///           nothing has changed. The other processes then throw PeerLost
  void load(std::filesystem::path const& file, WeightMap const& names = {}) {
    auto const mine = live().hold();
    load_by(file.string(), [&](Variables const& to) { load_weights(file, to, names); });
  }
  /// Reads the variables of a checkpoint into every replica of the job, whatever strategy saved it. Only the chief's is
  /// read.
  ///
  /// throws    BadFile when it is not of this network
  void load(Checkpoint const& from) {
    auto const mine = live().hold();
    load_by("a checkpoint", [&](Variables const& to) { from.copy(Section::variables, slots_of(to)); });
  }

  M const& model() const& { return replicas_.model(); }
  M const& model() const&& = delete;  // it would be gone: keep the trainer
  Seed seed() const { return replicas_.seed(); }

  int num_replicas() const { return live().num_replicas(); }
  bool is_chief() const { return live().is_chief(); }  // the process that writes files

  /// Hashes of the variables, one for each replica of this process: equal as long as all copies of all variables are.
  /// Where replicas have shards, of the shards.
  std::vector<std::uint64_t> hashes() const {
    auto all = std::vector<std::uint64_t>{};
    for (auto const& copy : replicas_.copies()) all.push_back(copy.hash());
    return all;
  }

  /// Number of steps made in all fits, with those whose update was left out: see FitOptions::on_non_finite, LossScaled.
  std::uint64_t step() const {
    live().expect_in_job();
    return replicas_.step();
  }

  float learning_rate() const {  // of the next update
    live().expect_in_job();
    return replicas_.copies()[0].optimizer.rate();
  }

  /// Replaces the optimizer's learning rate, schedule or number. Every process calls it with the same rate, or none.
  void set_learning_rate(float rate) {
    static_assert(!HasServers<S>,
                  "chorale: under ParameterServerStrategy the servers apply the optimizer, and a "
                  "worker cannot set its learning rate. A schedule of the optimizer works there");
    live().expect_in_job();
    CHORALE_EXPECTS(rate >= 0 && std::isfinite(rate), "a learning rate is 0 or more, got " + number_text(rate));
    for (auto& copy : copies()) copy.optimizer.now.rate = rate;
  }

  Variables variables() const& requires(!shards_variables<S>) {
    live().expect_in_job();
    return replicas_.copies()[0].net.variables();
  }
  /// Where replicas have shards of variables every process calls it, as it brings them together: valid until the next call.
  Variables variables() & requires shards_variables<S> { return detail::whole_variables(replicas_, whole_); }

  Variables variables() const&& = delete;

  /// True if variables() has all of them: no replica has only a part of a variable, or a stage of a pipeline.
  bool has_whole_variables() const { return !replicas_.whole().is_split(); }

  /// Replaces all variables. Every process calls it with the same values, or none.
  ///
  /// values    in the order of variables().values
  /// throws    BadArgument unless has_whole_variables()
  void set_variables(Span<float const> values) requires(!HasServers<S>) {
    live().expect_in_job();
    detail::set_variables<S>(replicas_, values);
  }

  /// Offset of this process' steady clock from rank 0's, for traces of several hosts. Every process calls it.
  ///
  /// keeps   0 with parameter servers, whose workers do not wait for one another, and where all replicas are here
  ClockOffset clock_offset() { return replicas_.clock_offset(); }

  /// Time of an all-reduce of the gradients while no replica computes. Every process calls it, between fits.
  ///
  /// returns   the shortest of five; empty if a step has no all-reduce, or one that is not of plain sums in host memory
  std::optional<StepPrediction> expected_step() { return replicas_.expected_step(); }

  /// Names of the scalars that sinks get: loss, metrics, both of validation too, the learning rate; with
  /// FitOptions::floor, in the fit under way or the last one, also the speed and percent_of_floor.
  std::vector<std::string> scalar_names() const {
    auto names = Replicas::Shown::names();
    if (measures_) names.insert(names.end(), {std::string{detail::counted_of<M>().scalar}, "percent_of_floor"});
    return names;
  }

  PerReplica<instance>& copies() & { return replicas_.copies(); }
  Live<S, R, T>& live() & { return replicas_.live(); }
  Live<S, R, T> const& live() const& { return replicas_.live(); }
  Live<S, R, T> const& live() const&& = delete;

 private:
  template <class Data, class... Callbacks>
  History fit_all(Data const& train, FitOptions const& options, Callbacks&... callbacks) {
    auto history     = History{};
    auto audience    = CallbackList<Trainer, std::remove_reference_t<Callbacks>...>{*this, callbacks...};
    auto checkpoints = detail::Checkpointing<M, S, R, T>{replicas_, options};
    auto loop        = Loop{replicas_, checkpoints, options};
    auto batches     = EpochBatches{live(), train, options.steps_per_epoch, options.initial_epoch};
    auto line        = ProgressLine{};
    bool const shown = options.show == Show::progress && is_chief();
    stopped_         = false;
    measures_        = options.floor;
    audience.fit_begins();
    auto at = checkpoints.resume(audience.states());
    if (at.found != 0) {
      audience.resumed();
      if (stopped_ || at.epoch >= options.epochs) checkpoints.report_nothing_left(at);
    }
    for (auto epoch = static_cast<int>(at.epoch); epoch < options.epochs && !stopped_; at = {.epoch = ++epoch}) {
      if (shown)
        line.begin_epoch(epoch + 1, options.epochs,
                         options.steps_per_epoch != 0 ? options.steps_per_epoch : train.size());
      for (auto& copy : copies()) copy.optimizer.now.epoch = epoch;
      audience.epoch_begins(epoch);
      if (at.found != 0)
        batches.resume(static_cast<std::size_t>(at.steps), static_cast<int>(at.pass),
                       static_cast<std::size_t>(at.batch));
      else batches.begin(epoch);
      history.push_back(detail::with_same_data(
          [&] { return loop.run_epoch(batches, at, shown ? &line : nullptr, audience); },
          [&] {
            return "in fit, at batch " + std::to_string(batches.taken()) + " of epoch " + std::to_string(epoch + 1);
          }));
      audience.epoch_ended(epoch, history.back());  // a callback may add what validation gave
      auto const scalars = typename Replicas::Shown{history.back()};
      audience.take(Scalars{.step = step(), .values = scalars.all(), .epoch = epoch});
      audience.flush();
      if (shown) line.end_epoch(scalars.scores_and_rate(), detail::text_of(history.back().speed));
      auto const is_last = stopped_ || epoch + 1 == options.epochs;
      if (options.checkpoint_every == 0 || is_last)
        detail::with_same_data([&] { checkpoints.save_after(epoch, is_last, batches, audience); },
                               [&] { return "in fit, after epoch " + std::to_string(epoch + 1); });
    }
    detail::with_same_data([&] { replicas_.expect_equal_copies(); }, [] { return std::string{"at the end of fit"}; });
    checkpoints.report_end();
    audience.fit_ended(history);
    return history;
  }

  void load_by([[maybe_unused]] std::string const& from, auto&& read) {
    if constexpr (HasServers<S>) detail::load_into_servers(replicas_, from, read);
    else detail::load_into_replicas(replicas_, read);
  }

  Replicas replicas_;
  std::vector<float> whole_;                 // all variables, where replicas have shards
  bool stopped_ = false, measures_ = false;  // measures: see FitOptions::floor
};

template <class M, class S> Trainer(M, S) -> Trainer<M, S, DirectAllReduce, LocalTransport>;
template <class M, class S, class R> Trainer(M, S, R) -> Trainer<M, S, R, LocalTransport>;
template <class M> Trainer(M) -> Trainer<M, detail::NoStrategy, DirectAllReduce, LocalTransport>;  // refused

}  // namespace chorale
