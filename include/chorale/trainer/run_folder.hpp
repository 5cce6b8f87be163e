// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/text.hpp>
#include <chorale/observe/clock_offset.hpp>
#include <chorale/observe/csv.hpp>
#include <chorale/observe/prometheus.hpp>
#include <chorale/observe/sink.hpp>
#include <chorale/observe/tally.hpp>
#include <chorale/observe/timeline.hpp>
#include <chorale/observe/why_slow.hpp>
#include <chorale/reduce/step_time.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/trainer/history.hpp>
#include <chorale/trainer/loggers.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Options of a RunFolder: which files it writes beside the scalars.
struct RunFolderOptions {
  bool timelines  = true;   // trace-RANK.json, of each process
  bool histograms = false;  // of each variable, after each epoch
  bool report     = true;   // what was slow, when fit ends
};

/// Callback and sink: writes all records of a run to one folder.
///
///   scalars.csv           loss, metrics, learning rate; `tools/run plot FOLDER` draws it. Lines with an epoch are
///                         means over it, the others of its steps so far
///   train, validation     the same, for TensorBoard, as the callback TensorBoard writes it; histograms of the variables
///   metrics.prom          counters and gauges for Prometheus, rewritten after each epoch
///   trace-RANK.json       what each rank of one process did, and when, for ui.perfetto.dev
///
///   trainer.fit(train, {.epochs = 12, .summary_every = 100}, validate_on(test), RunFolder{"run"});
///
/// keeps   every process of the job has one, with the same options, and only the chief writes curves. A run that is
///         resumed in its folder appends to the curves, and writes a new trace
/// throws  BadFile when a file cannot be written, or was written by a model with other metrics
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path folder, RunFolderOptions options = {})
      : folder_{std::move(folder)}, options_{options} {}

  void on_fit_begin(auto& trainer) {
    rank_ = trainer.live().local_replica(0).id();
    if (options_.timelines && !trace_) open_trace(trainer.clock_offset());
    if (options_.report) expected_ = trainer.expected_step();
    if (!trainer.is_chief() || curves_) return;
    auto columns = trainer.scalar_names();
    columns.insert(columns.begin(), "epoch");
    curves_.emplace(folder_ / "scalars.csv", std::move(columns));
  }
  void on_epoch_begin(auto& trainer, int) {  // only now the step of a checkpoint is known
    if (trainer.is_chief() && !board_.is_open()) board_.open(folder_, trainer.step());
  }

  void take(Event const& event) noexcept {
    tally_.take(event);
    if (trace_) trace_->take(event);
  }
  void take(Scalars const& scalars) {
    board_.take(scalars);
    auto values = std::vector<MetricValue>(scalars.values.begin(), scalars.values.end());
    if (scalars.epoch >= 0) values.push_back({"epoch", static_cast<double>(scalars.epoch)});
    curves_->take({.step = scalars.step, .values = values, .epoch = scalars.epoch});
  }
  void flush() {
    board_.flush();
    if (trace_) trace_->flush();
  }

  void on_epoch_end(auto& trainer, int epoch, Epoch& done) {
    auto const variables = options_.histograms ? trainer.variables() : Variables{};  // all bring their shards
    if (!trainer.is_chief()) return;
    board_.histograms(variables, epoch);
    page_.gauge("chorale_epoch", "Epochs that were finished.", epoch + 1);
    page_.gauge("chorale_loss", "Mean loss of the last epoch.", done.scores.loss());
    page_.counter("chorale_step_total", "Steps that were made.", static_cast<double>(trainer.step()));
    page_.gauge("chorale_" + std::string{done.speed.counted.scalar}, "Speed of the last epoch, over all replicas.",
                done.speed.per_second());
    if (auto const percent = done.speed.percent_of_floor())
      page_.gauge("chorale_percent_of_floor", "Least time of the last epoch over its time.", *percent);
    page_.counters(tally_);
    page_.write(folder_ / "metrics.prom");
  }

  void on_fit_end(auto& trainer, History const& history) const {
    if (!options_.report || !trainer.is_chief() || tally_.spent(rank_).steps == 0) return;
    auto const paces = tally_.paces();
    auto predicted   = std::optional<double>{};
    if (expected_) predicted = expected_->seconds(std::ranges::max(paces, {}, &Pace::p50).p50);
    std::cout << why_slow(tally_.spent(rank_), predicted) << straggler_line(paces) << floor_line(history);
  }

  Tally const& tally() const { return tally_; }  // of the ranks of this process

 private:
  /// floor: the last epoch took 1.92 s, and at least 1.30 s by this machine's arithmetic or memory: 68 %
  static std::string floor_line(History const& history) {
    if (history.empty() || !history.back().speed.floor_seconds) return {};
    auto const& last = history.back().speed;
    return formatted(
        "floor: the last epoch took %.3g s, and at least %.3g s by this machine's arithmetic or memory: "
        "%.0f %%\n",
        last.seconds, *last.floor_seconds, last.percent_of_floor().value_or(0));
  }

  /// Opens a new trace file. An existing one is never overwritten: a resumed run has one more.
  void open_trace(ClockOffset clock) {
    auto const name = "trace-" + std::to_string(rank_);
    auto file       = folder_ / (name + ".json");
    for (int again = 2; std::filesystem::exists(file); ++again)
      file = folder_ / (name + "-" + std::to_string(again) + ".json");
    trace_.emplace(file, clock);
  }

  std::filesystem::path folder_;
  RunFolderOptions options_;
  int rank_ = 0;
  std::optional<StepPrediction> expected_;
  Tally tally_;
  std::optional<Timeline> trace_;
  std::optional<CsvLog> curves_;
  detail::TensorBoardRuns board_;
  Prometheus page_;
};

}  // namespace chorale
