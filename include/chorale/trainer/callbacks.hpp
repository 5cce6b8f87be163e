// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/trainer/callback_list.hpp>
#include <chorale/trainer/history.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Callback: evaluates after each epoch, into Epoch::validation. To be given before callbacks that read "val_loss".
///
///   trainer.fit(train, {.epochs = 12}, validate_on(test), EarlyStopping{});
template <class Data>
class Validation {
 public:
  explicit Validation(Data const& data) : data_{data} {}

  void on_epoch_end(auto& trainer, int, Epoch& done) const { done.validation = trainer.evaluate(data_); }

 private:
  Data data_;
};
template <class Data>
Validation<Data> validate_on(Data const& data) {
  return Validation<Data>{data};
}

/// Whether smaller or larger values are better. automatic: larger if the name ends like that of a metric of which more
/// is better (accuracy, precision, recall, f1, auc, mean_iou, confusion_matrix), else smaller.
enum class Better { automatic, smaller, larger };

/// A value that a callback monitors, with the number of epochs since it last got better.
class Monitor {
 public:
  Monitor(std::string name, double min_delta, Better better)
      : name_{std::move(name)}, min_delta_{std::abs(min_delta)},
        sign_{better == Better::larger || (better == Better::automatic && more_is_better(name_)) ? -1.0 : 1.0} {}

  /// True if this epoch is better than all before, by more than min_delta. Called once for each epoch.
  ///
  /// throws  BadArgument when there is no such value
  bool improves(Epoch const& epoch) {
    auto& [best, without, resting] = numbers_;
    auto const value  = sign_ * epoch[name_];
    bool const better = value < best - min_delta_;
    if (better) best = value;
    if (resting > 0) --resting;
    without = better || resting > 0 ? 0 : without + 1;
    return better;
  }

  int  epochs_without() const { return static_cast<int>(numbers_[1]); }    // since the last better value
  void rest(int epochs) { numbers_ = {numbers_[0], 0, static_cast<double>(epochs) + 1}; }      // these do not count
  void forget() { numbers_ = first; }
  Span<double> state() { return numbers_; }

 private:
  static bool more_is_better(std::string_view name) {
    constexpr auto ends = std::array<std::string_view, 7>{"accuracy", "precision", "recall",          "f1",
                                                          "auc",      "mean_iou",  "confusion_matrix"};
    return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
  }

  std::string name_;
  double min_delta_, sign_;
  static constexpr auto first = std::array{std::numeric_limits<double>::infinity(), 0.0, 0.0};
  std::array<double, 3> numbers_ = first;                                  // best value · sign, epochs since, of rest
};

/// Options of EarlyStopping, with the names and defaults of Keras.
struct EarlyStoppingOptions {
  std::string monitor = "val_loss";                                        // see Epoch::operator[]
  double min_delta    = 0;
  int patience        = 0;                                                 // epochs without a better value
  Better better       = Better::automatic;
  bool restore_best   = false;                                             // at the end: variables of the best epoch
};

/// Callback: ends fit when a value has not become better for `patience` epochs.
///
/// keeps   every process decides the same, because every process has the same scores. A checkpoint keeps how long it
///         has waited and, with restore_best, the variables of the best epoch
/// cost    with restore_best, 8 bytes for each number of the variables, in memory and in each checkpoint
/// source  tf.keras.callbacks.EarlyStopping
class EarlyStopping {
 public:
  static constexpr auto name = std::string_view{"early_stopping"};

  explicit EarlyStopping(EarlyStoppingOptions options = {})
      : options_{std::move(options)}, monitor_{options_.monitor, options_.min_delta, options_.better} {
    CHORALE_EXPECTS(options_.patience >= 0,
                    "EarlyStopping waits 0 epochs or more, got " + std::to_string(options_.patience));
  }

  void on_fit_begin(auto& trainer) {
    monitor_.forget();
    best_epoch_ = -1;
    if constexpr (!requires { trainer.set_variables(Span<float const>{}); })
      CHORALE_EXPECTS(!options_.restore_best,
                      "EarlyStopping cannot restore the best variables where servers have them");
    else if (options_.restore_best) best_.assign(head + whole_of(trainer).size(), 0);
    note();
  }
  void on_resume(auto& trainer) {                                          // or a run that had ended, started again
    if (!best_.empty()) {
      std::copy_n(best_.begin(), head - 1, monitor_.state().begin());
      best_epoch_ = static_cast<int>(best_[head - 1]);
    }
    stop_when_enough(trainer);
  }
  void on_epoch_end(auto& trainer, int epoch, Epoch& done) {
    if (monitor_.improves(done)) {
      best_epoch_ = epoch;
      if (!best_.empty()) std::ranges::copy(whole_of(trainer), best_.begin() + head);
    }
    note();
    stop_when_enough(trainer);
  }
  void on_fit_end(auto& trainer, History const&) const {
    if constexpr (requires { trainer.set_variables(Span<float const>{}); })
      if (!best_.empty() && best_epoch_ >= 0)
        trainer.set_variables(std::vector<float>(best_.begin() + head, best_.end()));
  }

  int best_epoch() const { return best_epoch_; }                           // 0-based; -1 before the first
  Span<double> state() { return best_.empty() ? monitor_.state() : Span<double>{best_}; }

 private:
  static constexpr auto head = std::ptrdiff_t{4};                          // numbers before the variables

  /// All variables.
  static Span<float const> whole_of(auto& trainer) {
    CHORALE_EXPECTS(trainer.has_whole_variables(),
                    "EarlyStopping cannot restore the best variables where each of " +
                        std::to_string(trainer.num_replicas()) + " replicas has only a part or a stage of them: use "
                        "FitOptions::checkpoints");
    return trainer.variables().values;
  }
  void stop_when_enough(auto& trainer) const {
    if (monitor_.epochs_without() >= std::max(options_.patience, 1)) trainer.stop();
  }
  void note() {
    if (best_.empty()) return;
    std::ranges::copy(monitor_.state(), best_.begin());
    best_[head - 1] = best_epoch_;
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  int best_epoch_ = -1;
  std::vector<double> best_;                                               // monitor's, epoch, variables; or nothing
};

/// Options of ReduceLROnPlateau, with the names and defaults of Keras.
struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  float factor        = 0.1F;
  int patience        = 10;
  double min_delta    = 1e-4;
  int cooldown        = 0;                                                 // epochs after a change that do not count
  float min_rate      = 0;
  Better better       = Better::automatic;
};

/// Callback: multiplies the learning rate by `factor` when a value has not become better for `patience` epochs.
///
/// source  tf.keras.callbacks.ReduceLROnPlateau
class ReduceLROnPlateau {
 public:
  static constexpr auto name = std::string_view{"reduce_lr_on_plateau"};

  explicit ReduceLROnPlateau(ReduceLROnPlateauOptions options = {})
      : options_{std::move(options)}, monitor_{options_.monitor, options_.min_delta, options_.better} {
    CHORALE_EXPECTS(options_.factor > 0 && options_.factor < 1,
                    "ReduceLROnPlateau takes a factor between 0 and 1, got " + std::to_string(options_.factor));
    CHORALE_EXPECTS(options_.patience >= 0 && options_.cooldown >= 0,
                    "ReduceLROnPlateau waits 0 epochs or more, got patience " + std::to_string(options_.patience) +
                        " and cooldown " + std::to_string(options_.cooldown));
    CHORALE_EXPECTS(options_.min_rate >= 0, "ReduceLROnPlateau keeps the learning rate at 0 or above, got min_rate " +
                                                std::to_string(options_.min_rate));
  }

  void on_fit_begin(auto&) { monitor_.forget(); }
  void on_epoch_end(auto& trainer, int, Epoch& done) {
    if (monitor_.improves(done) || monitor_.epochs_without() < std::max(options_.patience, 1)) return;
    auto const rate = trainer.learning_rate();
    if (rate <= options_.min_rate) return;
    trainer.set_learning_rate(std::max(rate * options_.factor, options_.min_rate));
    monitor_.rest(options_.cooldown);
  }

  Span<double> state() { return monitor_.state(); }

 private:
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
};

/// Callback: sets the learning rate of each epoch, from its 0-based number and the rate so far.
///
///   LearningRateScheduler{[](int epoch, float rate) { return epoch < 10 ? rate : rate * 0.9F; }}
///
/// source  tf.keras.callbacks.LearningRateScheduler
class LearningRateScheduler {
 public:
  static constexpr auto name = std::string_view{"learning_rate_scheduler"};

  explicit LearningRateScheduler(std::function<float(int epoch, float rate)> rule) : rule_{std::move(rule)} {}

  void on_fit_begin(auto&) { set_for_ = -1; }
  void on_epoch_begin(auto& trainer, int epoch) {
    if (std::exchange(set_for_, epoch) == epoch) return;                   // resumed in its middle: the rate is set
    trainer.set_learning_rate(rule_(epoch, trainer.learning_rate()));
  }

  Span<double> state() { return {&set_for_, 1}; }

 private:
  std::function<float(int, float)> rule_;
  double set_for_ = -1;                                                    // the last epoch, 0-based
};

/// Options of ModelCheckpoint.
struct ModelCheckpointOptions {
  std::string file    = "model_{epoch}.safetensors";                       // {epoch}: from 1
  bool only_best      = false;
  std::string monitor = "val_loss";
  Better better       = Better::automatic;
};

/// Callback: writes the variables after each epoch, or only if it is the best so far. Only the chief writes.
///
/// keeps   a file is whole or as it was before. To resume an interrupted run, use FitOptions::checkpoints
/// throws  BadFile when the file cannot be written. See Trainer::save
/// source  tf.keras.callbacks.ModelCheckpoint, save_weights_only
class ModelCheckpoint {
 public:
  static constexpr bool chief_only = true;
  static constexpr auto name       = std::string_view{"model_checkpoint"};

  explicit ModelCheckpoint(ModelCheckpointOptions options = {})
      : options_{std::move(options)}, monitor_{options_.monitor, 0, options_.better} {
    CHORALE_EXPECTS(!options_.file.empty(), "ModelCheckpoint needs the name of a file, got \"\"");
  }

  void on_fit_begin(auto const&) { monitor_.forget(); }
  void on_epoch_end(auto const& trainer, int epoch, Epoch& done) {
    if (options_.only_best && !monitor_.improves(done)) return;
    trainer.save(file_of(epoch));
  }

  std::filesystem::path file_of(int epoch) const {
    auto file = options_.file;
    if (auto const at = file.find("{epoch}"); at != file.npos) file.replace(at, 7, std::to_string(epoch + 1));
    return file;
  }
  Span<double> state() { return monitor_.state(); }

 private:
  ModelCheckpointOptions options_;
  Monitor monitor_;
};

}  // namespace chorale
