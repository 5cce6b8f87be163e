// SPDX-License-Identifier: Apache-2.0
//
// Metrics with a state, see StateMetric, whose targets are numbers. Metrics of labels are in class_metrics.hpp.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/metrics/metric_state.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace chorale::metric {

/// A sum of floats without rounding: parts added up give the bits of the whole, in any order. A part of a state.
///
///   | digits of 24 bits, from 2^-149 on: 12 numbers | what is not finite |
///
/// keeps   exact up to 2^29 additions, then rounded as a sum of doubles
struct ExactSum {
  static constexpr std::size_t size = 13;

  /// Adds x to the sum in the first `size` numbers of a state.
  static void add(auto& state, float x) {
    if (!std::isfinite(x)) {
      state[size - 1] += static_cast<double>(x);
      return;
    }
    auto const bits     = std::bit_cast<std::uint32_t>(x);
    auto const exponent = bits >> 23 & 0xFF;
    auto const place    = exponent == 0 ? 0 : exponent - 1;  // x is digits * 2^(place - 149)
    auto const digits   = std::uint64_t{(bits & 0x7F'FFFF) | (exponent == 0 ? 0 : 0x80'0000)} << place % 24;
    auto const sign     = bits >> 31 != 0 ? -1.0 : 1.0;
    state[place / 24] += sign * static_cast<double>(digits & 0xFF'FFFF);
    state[place / 24 + 1] += sign * static_cast<double>(digits >> 24);
  }
  /// The sum, rounded to a double.
  static double value(auto const& state) {
    auto sum = state[size - 1];
    for (auto i = static_cast<int>(size) - 2; i >= 0; --i)
      sum += std::ldexp(state[static_cast<std::size_t>(i)], 24 * i - 149);
    return sum;
  }
};

namespace detail {

inline double ratio(double a, double b) { return b == 0 ? 0 : a / b; }

/// Counts of what is right and positive, positive, and wanted to be.
using Positives = std::array<double, 3>;

inline void count(Positives& sums, bool positive, bool wanted) {
  sums[0] += positive && wanted ? 1 : 0;
  sums[1] += positive ? 1 : 0;
  sums[2] += wanted ? 1 : 0;
}
inline void count_outputs(Positives& sums, float threshold, Span<float const> y, Span<float const> wanted) {
  for (std::size_t i = 0; i < y.size(); ++i) count(sums, y[i] > threshold, wanted[i] > 0.5F);
}
inline double precision(Positives const& sums) { return ratio(sums[0], sums[1]); }
inline double recall(Positives const& sums) { return ratio(sums[0], sums[2]); }
inline double f1(Positives const& sums) { return ratio(2 * sums[0], sums[1] + sums[2]); }

}  // namespace detail

/// The share of outputs above a threshold whose target is 1. 0 if none is above it.
///
/// targets   (B, width), each 0 or 1
/// source    tf.keras.metrics.Precision, whose threshold is for probabilities: 0.5
struct Precision {
  static constexpr std::string_view name = "precision";
  using state                            = detail::Positives;

  float threshold = 0;  // of logits; 0.5 of probabilities

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("threshold", threshold); }
  void check_outputs(bool probabilities) const {
    detail::check_threshold("metric::Precision", threshold, probabilities);
  }
  void update(state& sums, Span<float const> y, Span<float const> wanted) const {
    detail::count_outputs(sums, threshold, y, wanted);
  }
  double result(state const& sums) const { return detail::precision(sums); }
};

/// The share of targets that are 1 whose output is above a threshold. 0 if no target is 1.
///
/// targets   (B, width), each 0 or 1
/// source    tf.keras.metrics.Recall, whose threshold is for probabilities: 0.5
struct Recall {
  static constexpr std::string_view name = "recall";
  using state                            = detail::Positives;

  float threshold = 0;  // of logits; 0.5 of probabilities

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("threshold", threshold); }
  void check_outputs(bool probabilities) const { detail::check_threshold("metric::Recall", threshold, probabilities); }
  void update(state& sums, Span<float const> y, Span<float const> wanted) const {
    detail::count_outputs(sums, threshold, y, wanted);
  }
  double result(state const& sums) const { return detail::recall(sums); }
};

/// The harmonic mean of Precision and Recall, of all outputs together. 0 if no output is above the threshold and right.
///
/// targets   (B, width), each 0 or 1
/// source    tf.keras.metrics.F1Score(average="micro"), whose threshold is for probabilities
struct F1 {
  static constexpr std::string_view name = "f1";
  using state                            = detail::Positives;

  float threshold = 0;  // of logits; 0.5 of probabilities

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("threshold", threshold); }
  void check_outputs(bool probabilities) const { detail::check_threshold("metric::F1", threshold, probabilities); }
  void update(state& sums, Span<float const> y, Span<float const> wanted) const {
    detail::count_outputs(sums, threshold, y, wanted);
  }
  double result(state const& sums) const { return detail::f1(sums); }
};

/// The curve whose area AUC computes: recall over the share of false alarms, or precision over recall.
enum class Curve { roc, precision_recall };

/// The area under a curve over all thresholds, from histograms of the outputs whose target is 1, and 0. All outputs of
/// a row count alike.
///
/// targets   (B, width), each 0 or 1
/// source    tf.keras.metrics.AUC(num_thresholds, curve, from_logits): the same buckets and interpolation
template <int Thresholds = 200, Curve curve = Curve::roc> struct AUC {
  static_assert(Thresholds > 1, "chorale: metric::AUC<Thresholds> needs at least 2 thresholds");
  static constexpr std::string_view name = curve == Curve::roc ? "auc" : "precision_recall_auc";
  static constexpr std::size_t buckets   = Thresholds;
  using state = std::array<double, 2 * buckets>;  // of targets that are 1, of targets that are 0

  bool logits = true;  // false: outputs are probabilities

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("logits", logits); }
  void check_outputs(bool probabilities) const {
    CHORALE_EXPECTS(logits != probabilities, std::string{"metric::AUC reads "} + (logits ? "logits" : "probabilities") +
                                                 ", but the output that it looks at ends with " +
                                                 (logits ? "probabilities" : "logits") +
                                                 ": write metric::AUC<>{.logits = " + (logits ? "false}" : "true}"));
  }
  void update(state& sums, Span<float const> y, Span<float const> wanted) const {
    for (std::size_t i = 0; i < y.size(); ++i) {
      auto const p  = logits ? 1 / (1 + std::exp(-y[i])) : y[i];
      auto const at = std::ceil(p * static_cast<float>(buckets - 1)) - 1;
      auto const in = at > 0 ? std::min(static_cast<std::size_t>(at), buckets - 1) : 0;  // NaN: the first
      sums[wanted[i] > 0.5F ? in : buckets + in] += 1;
    }
  }
  double result(state const& sums) const {
    auto area = 0.0, hits = 0.0, alarms = 0.0;  // outputs above the threshold
    auto all_hits = 0.0, all_alarms = 0.0;
    for (std::size_t i = 0; i < buckets; ++i) all_hits += sums[i], all_alarms += sums[buckets + i];
    for (auto i = buckets; i-- > 0;) {
      auto const more_hits = hits + sums[i], more_alarms = alarms + sums[buckets + i];
      if (i + 1 < buckets)  // from threshold i + 1 to i
        area += curve == Curve::roc ? (more_alarms - alarms) * (hits + more_hits) / 2
                                    : under_precision(hits, alarms, more_hits, more_alarms);
      hits = more_hits, alarms = more_alarms;
    }
    return detail::ratio(area, curve == Curve::roc ? all_hits * all_alarms : all_hits);
  }

 private:
  /// Area under precision over hits, between two thresholds: between them hits grow in proportion to positives.
  ///
  /// source  Davis and Goadrich, "The Relationship Between Precision-Recall and ROC Curves", ICML 2006
  static double under_precision(double hits, double alarms, double more_hits, double more_alarms) {
    auto const positives = hits + alarms, more = more_hits + more_alarms;
    auto const slope = detail::ratio(more_hits - hits, more - positives);
    auto const ratio = positives > 0 && more > 0 ? more / positives : 1;
    return slope * (more_hits - hits + (hits - slope * positives) * std::log(ratio));
  }
};

/// The root of the mean over all outputs of (output - target)^2.
///
/// targets   (B, width)
/// keeps     the mean is exact: see ExactSum
/// source    tf.keras.metrics.RootMeanSquaredError
struct RootMeanSquaredError {
  static constexpr std::string_view name = "root_mean_squared_error";
  using state                            = std::array<double, ExactSum::size + 1>;  // sum, outputs

  void update(state& sums, Span<float const> y, Span<float const> wanted) const {
    for (std::size_t i = 0; i < y.size(); ++i) {
      auto const error = y[i] - wanted[i];
      ExactSum::add(sums, error * error);
      sums.back() += 1;
    }
  }
  double result(state const& sums) const { return std::sqrt(detail::ratio(ExactSum::value(sums), sums.back())); }
};

}  // namespace chorale::metric
