// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/tensor/plan.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// Loss and metrics over some rows: sums with their count, the mean formed when asked.
class Scores {
 public:
  Scores() = default;
  explicit Scores(Span<std::string_view const> metric_names) : names_{metric_names} {}

  /// sums    the header of Gradients: loss, rows, metrics, added up over rows
  void add(Span<float const> sums) {
    rows_ += sums[plan::rows_at];
    loss_ += sums[plan::loss_at];
    for (std::size_t i = 0; i < names_.size(); ++i) metrics_[i] += sums[plan::first_metric + i];
  }

  std::size_t rows() const { return static_cast<std::size_t>(rows_); }
  double loss() const { return mean(loss_); }
  std::size_t metrics() const { return names_.size(); }
  std::string_view name(std::size_t i) const { return names_[i]; }
  double metric(std::size_t i) const { return mean(metrics_[i]); }

  /// The mean of a metric, by its name.
  ///
  /// throws  BadArgument when the model has no such metric
  double operator[](std::string_view metric_name) const {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == metric_name) return metric(i);
    throw BadArgument{"the model has no metric " + std::string{metric_name} + ".", "naming it in nn::compile."};
  }

  /// loss 0.0373  accuracy 0.989
  friend std::ostream& operator<<(std::ostream& out, Scores const& s) {
    auto text = std::array<char, 32>{};
    std::snprintf(text.data(), text.size(), "loss %.4f", s.loss());
    out << text.data();
    for (std::size_t i = 0; i < s.metrics(); ++i) {
      std::snprintf(text.data(), text.size(), " %.4f", s.metric(i));
      out << "  " << s.name(i) << text.data();
    }
    return out;
  }

 private:
  double mean(double sum) const { return rows_ == 0 ? 0.0 : sum / rows_; }

  Span<std::string_view const> names_;
  std::array<double, plan::header> metrics_{};
  double loss_ = 0, rows_ = 0;
};

/// What one pass over the data gave.
struct Epoch {
  Scores scores;                                                           // means over all rows, as training went on
  std::size_t steps   = 0;
  std::size_t skipped = 0;                                                 // without an update: NonFinite::skip
  double seconds      = 0;
  float learning_rate = 0;                                                 // of its last step
};

/// What fit returns: one entry for each epoch.
using History = std::vector<Epoch>;

}  // namespace chorale
