// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/data/stage_options.hpp>
#include <chorale/trainer/callback_list.hpp>
#include <chorale/trainer/history.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Callback: evaluates after each epoch, into Epoch::validation, before all other callbacks.
///
///   trainer.fit(train, {.epochs = 12}, validate_on(test), EarlyStopping{});
template <class Data> class Validation {
 public:
  static constexpr bool comes_first = true;

  explicit Validation(Data const& data) : data_{data} {}

  void on_epoch_end(auto& trainer, int, Epoch& done) const { done.validation = trainer.evaluate(data_); }

 private:
  Data data_;
};
template <class Data> Validation<Data> validate_on(Data const& data) {
  static_assert(!data::detail::cuts_shuffled<Data>,
                "chorale: validate_on takes the same rows in every epoch, and take, skip or shard of shuffled or "
                "repeated batches are others, also those that train. Divide the rows before: take, skip or "
                "validation_split, then shuffle and batch");
  return Validation<Data>{data};
}
/// validate_on under the name that fit of Keras has for it.
template <class Data> Validation<Data> validation_data(Data const& data) { return validate_on(data); }

/// Whether smaller or larger values are better. automatic: larger if the name ends like a metric for which more is
/// better (accuracy, precision, recall, f1, auc, mean_iou, confusion_matrix), else smaller.
enum class Better { automatic, smaller, larger };

/// The best value of what a callback monitors, with the number of epochs since it last got better.
class Monitor {
 public:
  /// Options of a callback that monitors a value.
  struct Of {
    std::string_view name;  // see Epoch::operator[]
    double min_delta = 0;
    Better mode      = Better::automatic;
    std::optional<double> baseline{};  // values must be better than it to count
  };

  /// True if this epoch is better than all before, by more than min_delta. Called once for each epoch.
  ///
  /// throws  BadArgument when the epoch has no such value
  bool improves(Epoch const& epoch, Of const& of) {
    auto& [best, without, resting] = numbers_;
    bool const larger = of.mode == Better::larger || (of.mode == Better::automatic && more_is_better(of.name));
    auto const sign   = larger ? -1.0 : 1.0;
    auto const value  = sign * epoch[of.name];
    auto const beats  = [&](double other) { return value + std::abs(of.min_delta) < other; };
    bool const better = beats(best);
    if (better) best = value;
    if (resting > 0) --resting;
    bool const counts = better && (!of.baseline || beats(sign * *of.baseline));
    without           = counts || resting > 0 ? 0 : without + 1;
    return better;
  }

  int epochs_without() const { return static_cast<int>(numbers_[1]); }                 // since the last better value
  void rest(int epochs) { numbers_ = {numbers_[0], 0, static_cast<double>(epochs)}; }  // the last one counts
  void forget() { numbers_ = first; }
  Span<double> state() { return numbers_; }

 private:
  static bool more_is_better(std::string_view name) {
    constexpr auto ends =
        std::array<std::string_view, 7>{"accuracy", "precision", "recall", "f1", "auc", "mean_iou", "confusion_matrix"};
    return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
  }

  static constexpr auto first    = std::array{std::numeric_limits<double>::infinity(), 0.0, 0.0};
  std::array<double, 3> numbers_ = first;  // best value * sign, epochs since, of rest
};

namespace detail {

/// What EarlyStopping keeps from epoch to epoch.
struct BestEpoch {
  static constexpr auto head = std::ptrdiff_t{4};  // numbers before the variables

  Monitor monitor{};
  int epoch = -1;
  std::vector<double> all{};  // monitor's, epoch, variables; or nothing

  Span<double> state() { return all.empty() ? monitor.state() : Span<double>{all}; }
  void note() {
    if (all.empty()) return;
    std::ranges::copy(monitor.state(), all.begin());
    all[head - 1] = epoch;
  }
};

}  // namespace detail

/// Callback: ends fit when a value has not become better for `patience` epochs.
///
///   trainer.fit(train, {.epochs = 12}, validate_on(test), EarlyStopping{.patience = 3, .restore_best_weights = true});
///
/// keeps   every process decides the same, because every process has the same scores. A checkpoint keeps how long it
///         has waited and, with restore_best_weights, the variables of the best epoch
/// cost    with restore_best_weights, 8 bytes for each number of the variables, in memory and in each checkpoint
/// throws  BadArgument when fit begins if an option cannot be
/// source  keras.callbacks.EarlyStopping: its names, order and defaults
struct EarlyStopping {
  static constexpr auto name = std::string_view{"early_stopping"};

  std::string monitor = "val_loss";  // see Epoch::operator[]
  double min_delta    = 0;
  int patience        = 0;  // epochs without a better value
  Better mode         = Better::automatic;
  std::optional<double> baseline{};   // patience counts until a value is better
  bool restore_best_weights = false;  // at the end: variables of the best epoch
  int start_from_epoch      = 0;      // earlier epochs are not looked at
  detail::BestEpoch kept{};

  void on_fit_begin(auto& trainer) {
    CHORALE_EXPECTS(patience >= 0 && start_from_epoch >= 0, "EarlyStopping waits 0 epochs or more, got patience " +
                                                                std::to_string(patience) + " and start_from_epoch " +
                                                                std::to_string(start_from_epoch));
    kept = {};
    if constexpr (!requires { trainer.set_variables(Span<float const>{}); })
      CHORALE_EXPECTS(!restore_best_weights, "EarlyStopping cannot restore the best variables where servers have them");
    else if (restore_best_weights) kept.all.assign(kept.head + whole_of(trainer).size(), 0);
    kept.note();
  }
  void on_resume(auto& trainer) {  // or a run that had ended, started again
    if (!kept.all.empty()) {
      std::copy_n(kept.all.begin(), kept.head - 1, kept.monitor.state().begin());
      kept.epoch = static_cast<int>(kept.all[kept.head - 1]);
    }
    if (!baseline) stop_when_enough(trainer);
  }
  void on_epoch_end(auto& trainer, int epoch, Epoch& done) {
    if (epoch < start_from_epoch) return;
    auto const better = kept.monitor.improves(done, {monitor, min_delta, mode, baseline});
    if (better) {
      kept.epoch = epoch;
      if (!kept.all.empty()) std::ranges::copy(whole_of(trainer), kept.all.begin() + kept.head);
    }
    kept.note();
    if (!better) stop_when_enough(trainer);
  }
  void on_fit_end(auto& trainer, History const&) const {
    if constexpr (requires { trainer.set_variables(Span<float const>{}); })
      if (!kept.all.empty() && kept.epoch >= 0)
        trainer.set_variables(std::vector<float>(kept.all.begin() + kept.head, kept.all.end()));
  }

  int best_epoch() const { return kept.epoch; }  // 0-based; -1 before the first
  Span<double> state() { return kept.state(); }

 private:
  /// All variables.
  static Span<float const> whole_of(auto& trainer) {
    CHORALE_EXPECTS(trainer.has_whole_variables(), "EarlyStopping cannot restore the best variables where each of " +
                                                       std::to_string(trainer.num_replicas()) +
                                                       " replicas has only a part or a stage of them: use "
                                                       "FitOptions::checkpoints");
    return trainer.variables().values;
  }
  void stop_when_enough(auto& trainer) const {
    if (kept.monitor.epochs_without() >= std::max(patience, 1)) trainer.stop();
  }
};

/// Callback: multiplies the learning rate by `factor` when a value has not become better for `patience` epochs.
///
/// throws  BadArgument when fit begins if an option cannot be
/// source  keras.callbacks.ReduceLROnPlateau: its names, order and defaults
struct ReduceLROnPlateau {
  static constexpr auto name = std::string_view{"reduce_lr_on_plateau"};

  std::string monitor = "val_loss";
  float factor        = 0.1F;
  int patience        = 10;
  Better mode         = Better::automatic;
  double min_delta    = 1e-4;
  int cooldown        = 0;  // epochs after a change: the last one counts
  float min_lr        = 0;
  Monitor kept{};

  void on_fit_begin(auto&) {
    CHORALE_EXPECTS(factor > 0 && factor < 1,
                    "ReduceLROnPlateau takes a factor between 0 and 1, got " + number_text(factor));
    CHORALE_EXPECTS(patience >= 0 && cooldown >= 0, "ReduceLROnPlateau waits 0 epochs or more, got patience " +
                                                        std::to_string(patience) + " and cooldown " +
                                                        std::to_string(cooldown));
    CHORALE_EXPECTS(min_lr >= 0,
                    "ReduceLROnPlateau keeps the learning rate at 0 or above, got min_lr " + std::to_string(min_lr));
    kept.forget();
  }
  void on_epoch_end(auto& trainer, int, Epoch& done) {
    done.rate_is_set = true;
    if (kept.improves(done, {monitor, min_delta, mode, {}}) || kept.epochs_without() < std::max(patience, 1)) return;
    auto const rate = trainer.learning_rate();
    if (rate <= min_lr) return;
    trainer.set_learning_rate(std::max(rate * factor, min_lr));
    kept.rest(cooldown);
  }

  Span<double> state() { return kept.state(); }
};

/// Callback: sets the learning rate of each epoch, from its 0-based number and the rate so far.
///
///   LearningRateScheduler{[](int epoch, float rate) { return epoch < 10 ? rate : rate * 0.9F; }}
///
/// source  keras.callbacks.LearningRateScheduler
class LearningRateScheduler {
 public:
  static constexpr auto name = std::string_view{"learning_rate_scheduler"};

  explicit LearningRateScheduler(std::function<float(int epoch, float rate)> rule) : rule_{std::move(rule)} {}

  void on_fit_begin(auto&) { set_for_ = -1; }
  void on_epoch_begin(auto& trainer, int epoch) {
    if (std::exchange(set_for_, epoch) == epoch) return;  // resumed in its middle: the rate is set
    trainer.set_learning_rate(rule_(epoch, trainer.learning_rate()));
  }
  void on_epoch_end(auto&, int, Epoch& done) const { done.rate_is_set = true; }

  Span<double> state() { return {&set_for_, 1}; }

 private:
  std::function<float(int, float)> rule_;
  double set_for_ = -1;  // the last epoch, 0-based
};

namespace detail {

/// A file name with numbers in it: model_{epoch:02d}-{val_loss:.4f}.safetensors.
///
/// throws  BadArgument when a brace is not closed, a form is neither digits and d nor .digits and f, or no value has
///         that name
inline std::string file_of_epoch(std::string_view pattern, int epoch, Epoch const& done) {
  auto file = std::string{};
  while (true) {
    auto const open = pattern.find('{');
    file += pattern.substr(0, open);
    if (open == pattern.npos) return file;
    auto const close = pattern.find('}', open);
    auto const inner = pattern.substr(open + 1, close == pattern.npos ? close : close - open - 1);
    auto const colon = inner.find(':');
    auto const what  = inner.substr(0, colon);
    auto form        = std::string{colon == inner.npos ? (what == "epoch" ? "d" : "f") : inner.substr(colon + 1)};
    auto const point = !form.empty() && form[0] == '.' ? std::size_t{1} : 0;
    auto const kind  = form.empty() ? '?' : form.back();
    bool const known = close != pattern.npos && form.size() <= 4 && kind == (what == "epoch" ? 'd' : 'f') &&
                       (kind == 'f' || point == 0) &&
                       std::all_of(form.begin() + static_cast<std::ptrdiff_t>(point), form.end() - 1,
                                   [](char c) { return c >= '0' && c <= '9'; });
    CHORALE_EXPECTS(known, "ModelCheckpoint cannot make a file name with {" + std::string{inner} +
                               "}: write {epoch}, {epoch:02d}, {val_loss} or {val_loss:.4f}");
    form = std::string{'%'}.append(form);
    file += kind == 'd' ? formatted(form.c_str(), epoch + 1) : formatted(form.c_str(), done[what]);
    pattern.remove_prefix(close + 1);
  }
}

}  // namespace detail

/// Callback: writes the variables after each epoch, or only if it is the best so far. Only the chief writes.
///
///   ModelCheckpoint{"best.safetensors"}, ModelCheckpoint{.filepath = "{epoch:02d}-{val_loss:.2f}.safetensors"}
///
/// keeps   a file is whole or as it was before. To resume an interrupted run, use FitOptions::checkpoints
/// throws  BadFile when the file cannot be written. See Trainer::save
/// source  keras.callbacks.ModelCheckpoint: its names, order and defaults; save_weights_only
struct ModelCheckpoint {
  static constexpr bool chief_only = true;
  static constexpr auto name       = std::string_view{"model_checkpoint"};

  std::string filepath = "model_{epoch}.safetensors";  // epoch: from 1; or a value: {val_loss:.4f}
  std::string monitor  = "val_loss";
  bool save_best_only  = false;
  Better mode          = Better::automatic;
  Monitor kept{};

  void on_fit_begin(auto const&) {
    CHORALE_EXPECTS(!filepath.empty(), "ModelCheckpoint needs the name of a file, got \"\"");
    kept.forget();
  }
  void on_epoch_end(auto const& trainer, int epoch, Epoch& done) {
    if (save_best_only && !kept.improves(done, {monitor, 0, mode, {}})) return;
    trainer.save(std::filesystem::path{detail::file_of_epoch(filepath, epoch, done)});
  }

  Span<double> state() { return kept.state(); }
};

}  // namespace chorale
