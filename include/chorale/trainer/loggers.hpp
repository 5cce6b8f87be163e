// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/observe/csv.hpp>
#include <chorale/observe/event.hpp>
#include <chorale/observe/run_file.hpp>
#include <chorale/observe/tensorboard.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/trainer/history.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

namespace detail {

/// The runs `train` and `validation` of a folder for TensorBoard, with the names that Keras gives to curves, so that
/// curves of both share a chart, and runs of both programs, too.
///
///   epoch_loss, epoch_accuracy        in both runs, by the 0-based epoch; epoch_learning_rate in train
///   evaluation_loss_vs_iterations     in validation, by the update
///   batch_loss, batch_accuracy        in train, by the update: means of the epoch so far
class TensorBoardRuns {
 public:
  /// step   updates that were made: what an earlier start wrote of later ones is overwritten; 0: all of it
  void open(std::filesystem::path const& folder, std::uint64_t step) {
    folder_     = folder;
    first_step_ = step == 0 ? 0 : step + 1;
    train_      = make_run("train");
    validation_.reset();
  }
  bool is_open() const { return train_ != nullptr; }

  void take(Scalars const& scalars) {
    auto const epoch = static_cast<std::uint64_t>(std::max(scalars.epoch, 0));
    auto train = Renamed{}, validation = Renamed{}, iterations = Renamed{};
    for (auto const& [name, value] : scalars.values) {
      if (!name.starts_with("val_")) {
        train.add(scalars.epoch < 0 ? "batch_" : "epoch_", name, "", value);
        continue;
      }
      validation.add("epoch_", name.substr(4), "", value);
      iterations.add("evaluation_", name.substr(4), "_vs_iterations", value);
    }
    train_->take({.step = scalars.epoch < 0 ? scalars.step : epoch, .values = train.all(), .epoch = scalars.epoch});
    if (validation.all().empty()) return;
    if (!validation_) validation_ = make_run("validation");
    validation_->take({.step = epoch, .values = validation.all(), .epoch = scalars.epoch});
    validation_->take({.step = scalars.step, .values = iterations.all()});
  }
  void histograms(Variables const& variables, int epoch) {
    for (auto const& variable : variables)
      train_->histogram(std::string{variable.name} + "/histogram", static_cast<std::uint64_t>(epoch), variable.value);
  }
  void flush() {
    if (train_) train_->flush();
    if (validation_) validation_->flush();
  }

 private:
  /// Values with longer names, which it owns.
  class Renamed {
   public:
    void add(std::string_view before, std::string_view name, std::string_view after, double value) {
      names_.push_back(std::string{before}.append(name).append(after));
      values_.push_back({names_.back(), value});
    }
    Span<MetricValue const> all() const { return values_; }

   private:
    std::deque<std::string> names_;  // which it does not move when it grows
    std::vector<MetricValue> values_;
  };

  std::unique_ptr<TensorBoardRun> make_run(char const* name) const {
    return std::make_unique<TensorBoardRun>(folder_ / name, TensorBoardRunOptions{.first_step = first_step_});
  }

  std::filesystem::path folder_;
  std::uint64_t first_step_ = 0;
  std::unique_ptr<TensorBoardRun> train_, validation_;
};

/// What CSVLogger keeps from epoch to epoch.
struct EpochTable {
  std::vector<std::string> columns{};  // without the epoch; empty: no file yet
  std::unique_ptr<RunFile> file{};
  bool resumed = false;
};

}  // namespace detail

/// Callback and sink: writes curves for TensorBoard into log_dir/train and log_dir/validation, under the names that
/// Keras writes: epoch_loss, epoch_accuracy, epoch_learning_rate, evaluation_loss_vs_iterations. With
/// FitOptions::summary_every also batch_loss and the like, which are Keras' update_freq.
///
///   trainer.fit(train, {.epochs = 12}, validate_on(test), TensorBoard{"logs"});       then: tensorboard --logdir logs
///
/// keeps   every process of the job has one, and only the chief writes. What it took is in the files with each epoch and
///         before each checkpoint, so that a fit that was killed and resumes continues the same curves without a gap
/// throws  BadFile when a file cannot be written
/// source  keras.callbacks.TensorBoard: its names, order and defaults
struct TensorBoard {
  std::filesystem::path log_dir = "logs";
  int histogram_freq            = 0;  // epochs between histograms; 0: none
  detail::TensorBoardRuns runs{};

  void on_fit_begin(auto&) {
    CHORALE_EXPECTS(histogram_freq >= 0,
                    "TensorBoard writes histograms every 1 epoch or more, or with 0 none, got "
                    "histogram_freq " +
                        std::to_string(histogram_freq));
    runs = {};
  }
  void on_epoch_begin(auto& trainer, int) {  // only now the step of a checkpoint is known
    if (trainer.is_chief() && !runs.is_open()) runs.open(log_dir, trainer.step());
  }
  void on_epoch_end(auto& trainer, int epoch, Epoch&) {
    if (histogram_freq == 0 || epoch % histogram_freq != 0) return;
    auto const variables = trainer.variables();  // all processes bring their shards
    if (trainer.is_chief()) runs.histograms(variables, epoch);
  }

  void take(Scalars const& scalars) { runs.take(scalars); }  // of the chief
  void flush() { runs.flush(); }
};

/// Callback: writes a line for each epoch to a CSV file, which begins again with each fit, but continues in one that
/// resumes from a checkpoint.
///
///   epoch,accuracy,learning_rate,loss,val_accuracy,val_loss
///   0,0.8417,0.001,0.5102,0.9303,0.2371
///
/// keeps   the columns of Keras: the 0-based epoch, then all values by name. The learning rate is one of them if a
///         callback before this one sets it; without validation its columns are NA
/// throws  BadFile when the file cannot be written, or, with `append`, has other columns
/// source  keras.callbacks.CSVLogger: its names, order and defaults
struct CSVLogger {
  static constexpr bool chief_only = true;

  std::filesystem::path filename = "log.csv";
  char separator                 = ',';
  bool append                    = false;  // to what an earlier fit wrote
  detail::EpochTable kept{};

  void on_fit_begin(auto const&) {
    CHORALE_EXPECTS(!filename.empty(), "CSVLogger needs the name of a file, got \"\"");
    kept = {};
  }
  void on_resume(auto const&) { kept.resumed = true; }
  void on_epoch_end(auto const&, int epoch, Epoch& done) {
    if (kept.file == nullptr) begin(epoch, done);
    auto line = std::to_string(epoch);
    for (auto const& column : kept.columns) {
      bool const is_there = done.validation || !column.starts_with("val_");
      line += separator + (is_there ? number_text(done[column]) : std::string{"NA"});
    }
    kept.file->append(line + "\n");
  }

 private:
  /// Opens the file, and writes the first line where it has none.
  void begin(int epoch, Epoch const& done) {
    kept.columns = {"loss"};
    for (std::size_t i = 0; i < done.scores.metrics(); ++i) kept.columns.emplace_back(done.scores.name(i));
    if (done.rate_is_set) kept.columns.emplace_back("learning_rate");
    std::ranges::sort(kept.columns);
    // Keras has a val_learning_rate only where it does not validate.
    for (std::size_t i = 0, n = kept.columns.size(); i < n; ++i)
      if (!done.validation || kept.columns[i] != "learning_rate") kept.columns.push_back("val_" + kept.columns[i]);
    if (done.validation) std::ranges::sort(kept.columns);
    auto header = std::string{"epoch"};
    for (auto const& name : kept.columns) header += separator + detail::csv_cell(name);
    header += '\n';
    auto const goes_on = append || kept.resumed;
    kept.file          = std::make_unique<RunFile>(filename, goes_on ? RunFile::Open::append : RunFile::Open::fresh);
    auto const content = kept.file->size() == 0 ? std::string{} : read_file(filename);
    auto const lines   = content.rfind('\n') + 1;  // npos + 1 is 0: none is whole
    if (lines == 0) return kept.file->write_at(0, header);
    if (!content.starts_with(header))
      throw BadFile{filename.string() + ": has the columns \"" + content.substr(0, content.find_first_of("\r\n")) +
                        "\", but this run has \"" + header.substr(0, header.size() - 1) + "\".",
                    "another file for this run, or the same metrics."};
    kept.file->write_at(kept.resumed ? end_before(content, header.size(), lines, epoch) : lines, "");
  }

  /// Where the lines of earlier epochs end, in a file of a run that resumes at `epoch`.
  ///
  /// begin, end   of the whole lines after the header; with `append` the first of them may be of another run, so lines
  ///              are dropped from the end, up to one of an earlier epoch
  static std::size_t end_before(std::string const& content, std::size_t begin, std::size_t end, int epoch) {
    while (end > begin) {
      auto const line = content.rfind('\n', end - 2) + 1;
      auto of         = epoch;
      std::from_chars(content.data() + line, content.data() + end, of);
      if (of < epoch) break;
      end = line;
    }
    return end;
  }
};

}  // namespace chorale
