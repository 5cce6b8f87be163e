// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/step_header.hpp>
#include <chorale/trainer/speed.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Loss, rows and metrics added up over rows, as replicas and ranks exchange them.
struct Totals {
  std::array<double, plan::header> sums{};  // laid out as the header of Gradients

  Totals& operator+=(Span<float const> header) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += header[i];
    return *this;
  }
  Totals& operator+=(Totals const& other) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other.sums[i];
    return *this;
  }
};

/// Loss and metrics over some rows: sums with their count; means are computed when they are read. Of a metric with a
/// state: its result, and its counts.
class Scores {
 public:
  using CountsOfMetrics = std::vector<std::vector<double>>;  // for each metric; empty: it has no state

  Scores() = default;
  explicit Scores(Span<std::string_view const> metric_names, Totals const& totals = {})
      : names_{metric_names}, totals_{totals} {}

  /// Adds the header of Gradients: loss, rows and metrics, added up over rows.
  void add(Span<float const> header) { totals_ += header; }

  std::size_t rows() const { return static_cast<std::size_t>(sums().rows()); }
  /// The mean loss, over rows, or over positions as loss::per_position counts them.
  double loss() const { return positions() != 0 ? sums().loss() / positions() : mean(sums().loss()); }
  std::size_t metrics() const { return names_.size(); }
  std::string_view name(std::size_t i) const { return names_[i]; }
  double metric(std::size_t i) const {
    if (positions() != 0 && name(i).ends_with("_loss")) return sums().metric(i) / positions();  // of one output
    return (with_state_ >> i & 1) != 0 ? results_[i] : mean(sums().metric(i));
  }

  /// The mean of a metric, or the result of one that has a state, by its name.
  ///
  /// throws  BadArgument when the model has no such metric
  double operator[](std::string_view metric_name) const { return metric(index_of(metric_name)); }

  /// The state of a metric, added up over all rows, such as the table of metric::ConfusionMatrix. Valid as long as any
  /// copy of these scores.
  ///
  /// throws  BadArgument when the model has no such metric, the metric has no state, or these are scores of a step:
  ///         states are added up at the end of an epoch, and of evaluate
  Span<double const> counts(std::string_view metric_name) const& {
    auto const i = index_of(metric_name);
    if ((with_state_ >> i & 1) == 0)
      throw BadArgument{"the metric " + std::string{metric_name} + " is a mean over rows, and has no counts.",
                        "a metric with a state, such as metric::ConfusionMatrix."};
    if (!counts_)
      throw BadArgument{"the counts of " + std::string{metric_name} +
                            " are asked for after a step, before replicas have added them up.",
                        "the scores of an epoch, or of evaluate."};
    return (*counts_)[i];
  }

  Span<double const> counts(std::string_view) const&& = delete;  // they would be gone: keep the scores

  /// Sets the result of metric i, which has a state. Called by the library.
  void set_result(std::size_t i, double result) {
    results_[i] = result;
    with_state_ |= std::uint32_t{1} << i;
  }
  void set_counts(std::shared_ptr<CountsOfMetrics const> counts) { counts_ = std::move(counts); }

  /// Writes "loss 0.0373  accuracy 0.9890".
  friend std::ostream& operator<<(std::ostream& out, Scores const& s) {
    out << formatted("loss %.4f", s.loss());
    for (std::size_t i = 0; i < s.metrics(); ++i) out << "  " << s.name(i) << formatted(" %.4f", s.metric(i));
    return out;
  }

 private:
  StepHeader<double const> sums() const { return StepHeader{totals_.sums}; }
  double positions() const { return metrics() < StepHeader<double>::max_metrics ? sums().positions() : 0; }
  double mean(double sum) const { return rows() == 0 ? 0.0 : sum / sums().rows(); }
  std::size_t index_of(std::string_view metric_name) const {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == metric_name) return i;
    throw BadArgument{"the model has no metric " + std::string{metric_name} + ".", "naming it in nn::compile."};
  }

  Span<std::string_view const> names_;
  Totals totals_;
  std::array<double, StepHeader<double>::max_metrics> results_{};  // of metrics with a state
  std::uint32_t with_state_ = 0;                                   // bit i: metric i has one
  std::shared_ptr<CountsOfMetrics const> counts_;
};

/// Results at the end of a step, for callbacks with on_step_end().
struct StepEnd {
  std::size_t step = 0;  // of the epoch, from 1
  Scores scores{};       // of the epoch so far
};

/// Results of one epoch of training.
struct Epoch {
  Scores scores{};                     // over all rows, during training
  std::optional<Scores> validation{};  // after the epoch: see validate_on
  std::size_t steps   = 0;
  std::size_t skipped = 0;  // without an update: NonFinite::skip
  double seconds      = 0;
  float learning_rate = 0;      // of its last step
  bool rate_is_set    = false;  // by a callback: CSVLogger then has it
  Speed speed{};

  /// Value of "loss", a metric by its name, "val_loss", "val_" and a metric's name, "learning_rate", the speed by its
  /// name, such as "images_per_second", or "percent_of_floor".
  ///
  /// throws  BadArgument when no value has that name
  double operator[](std::string_view name) const {
    if (name == "learning_rate") return static_cast<double>(learning_rate);
    if (auto const of_speed = speed.find(name)) return *of_speed;
    bool const of_validation = name.starts_with("val_");
    if (of_validation && !validation)
      throw BadArgument{std::string{name} + " is asked for, but fit does not validate.",
                        "validate_on(data) before the callback that asks."};
    if (of_validation) name.remove_prefix(4);
    auto const& from = of_validation ? *validation : scores;
    return name == "loss" ? from.loss() : from[name];
  }
};

/// Result of fit: one entry for each epoch that this call of fit has trained. Empty if nothing was left to train, since
/// the checkpoint is of a run that is complete or was stopped by a callback, and in a process that only serves.
///
/// throws  BadArgument when an epoch is asked for that it does not have
class History {
 public:
  std::size_t size() const { return epochs_.size(); }
  bool empty() const { return epochs_.empty(); }
  auto begin() const { return epochs_.begin(); }
  auto end() const { return epochs_.end(); }
  /// Epoch i of this call of fit, 0-based; a copy of a History that is not kept, as in trainer.fit(data).back().
  Epoch const& operator[](std::size_t i) const& {
    if (i < size()) return epochs_[i];
    throw BadArgument{"epoch " + std::to_string(i) + " of a History is asked for, and it has " +
                          std::to_string(size()) + (empty() ? ": fit had nothing left to train here." : "."),
                      empty() ? std::string{empty_advice} : "a number below " + std::to_string(size()) + "."};
  }
  Epoch const& at(std::size_t i) const& { return (*this)[i]; }
  Epoch const& front() const& { return (*this)[0]; }
  Epoch const& back() const& { return (*this)[empty() ? 0 : size() - 1]; }
  Epoch& back() & { return const_cast<Epoch&>(std::as_const(*this).back()); }
  Epoch operator[](std::size_t i) && { return std::as_const(*this)[i]; }
  Epoch at(std::size_t i) && { return std::as_const(*this)[i]; }
  Epoch front() && { return std::as_const(*this).front(); }
  Epoch back() && { return std::as_const(*this).back(); }

  void push_back(Epoch const& epoch) { epochs_.push_back(epoch); }

 private:
  static constexpr auto empty_advice =
      "asking empty() first. More FitOptions::epochs train on, and another folder of checkpoints begins again.";

  std::vector<Epoch> epochs_;
};

}  // namespace chorale
