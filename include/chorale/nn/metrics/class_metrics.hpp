// SPDX-License-Identifier: Apache-2.0
//
// Metrics with a state, see StateMetric, whose targets are labels, or numbers, where the largest tells the class.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/nn/metrics/state_metrics.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace chorale::metric {

namespace detail {

inline std::size_t class_of(Span<int const> wanted) { return static_cast<std::size_t>(wanted[0]); }
inline std::size_t class_of(Span<float const> y) {
  return static_cast<std::size_t>(std::max_element(y.begin(), y.end()) - y.begin());
}

template <int Class> constexpr Name name_in_class(std::string_view what) {
  static_assert(Class >= 0, "chorale: a metric of a class takes its label, which is 0 or more");
  return numbered("class_", Class, "_") += what;
}

/// Adds one to the place (wanted class, class of the largest output) of a table.
template <int Classes, class T>
void count_in_table(std::array<double, std::size_t{Classes} * Classes>& table, char const* metric, Span<float const> y,
                    Span<T const> wanted) {
  constexpr auto n = std::size_t{Classes};
  CHORALE_EXPECTS(y.size() == n, std::string{metric} + "<" + std::to_string(n) + "> counts " + std::to_string(n) +
                                     " classes, but the network has " + std::to_string(y.size()) + " outputs for each");
  auto const label = class_of(wanted);
  CHORALE_EXPECTS(label < n, std::string{metric} + "<" + std::to_string(n) + "> got the label " +
                                 std::to_string(static_cast<std::ptrdiff_t>(label)));
  table[label * n + class_of(y)] += 1;
}

}  // namespace detail

/// Precision of one class among several: of the rows whose largest output is the class's, the share with this target.
///
/// targets   a label, or (B, classes)
/// source    tf.keras.metrics.Precision(class_id=Class, top_k=1)
template <int Class> struct PrecisionOf {
  static constexpr Name long_name            = detail::name_in_class<Class>("precision");
  static constexpr std::string_view name     = long_name;  // "class_3_precision"
  static constexpr std::size_t least_outputs = std::max(2, Class + 1);
  using state                                = detail::Positives;

  template <class T> void update(state& sums, Span<float const> y, Span<T const> wanted) const {
    detail::count(sums, detail::class_of(y) == Class, detail::class_of(wanted) == Class);
  }
  double result(state const& sums) const { return detail::precision(sums); }
};

/// Recall of one class among several: the share of its rows in which its output is the largest.
///
/// targets   a label, or (B, classes)
/// source    tf.keras.metrics.Recall(class_id=Class, top_k=1)
template <int Class> struct RecallOf {
  static constexpr Name long_name            = detail::name_in_class<Class>("recall");
  static constexpr std::string_view name     = long_name;  // "class_3_recall"
  static constexpr std::size_t least_outputs = std::max(2, Class + 1);
  using state                                = detail::Positives;

  template <class T> void update(state& sums, Span<float const> y, Span<T const> wanted) const {
    detail::count(sums, detail::class_of(y) == Class, detail::class_of(wanted) == Class);
  }
  double result(state const& sums) const { return detail::recall(sums); }
};

/// The harmonic mean of PrecisionOf and RecallOf.
///
/// targets   a label, or (B, classes)
/// source    tf.keras.metrics.F1Score(average=None), its element Class
template <int Class> struct F1Of {
  static constexpr Name long_name            = detail::name_in_class<Class>("f1");
  static constexpr std::string_view name     = long_name;  // "class_3_f1"
  static constexpr std::size_t least_outputs = std::max(2, Class + 1);
  using state                                = detail::Positives;

  template <class T> void update(state& sums, Span<float const> y, Span<T const> wanted) const {
    detail::count(sums, detail::class_of(y) == Class, detail::class_of(wanted) == Class);
  }
  double result(state const& sums) const { return detail::f1(sums); }
};

/// How often each class was taken for each other one. Its result is the accuracy; Scores::counts("confusion_matrix")
/// has the table, (wanted class, class of the largest output).
///
/// targets   a label, or (B, Classes)
/// throws    BadArgument if the network has another number of outputs, or a label is not of a class
/// source    tf.math.confusion_matrix
template <int Classes> struct ConfusionMatrix {
  static_assert(Classes > 0, "chorale: metric::ConfusionMatrix<Classes> needs at least 1 class");
  static constexpr std::string_view name     = "confusion_matrix";
  static constexpr std::size_t least_outputs = 2;
  using state                                = std::array<double, std::size_t{Classes} * Classes>;

  template <class T> void update(state& table, Span<float const> y, Span<T const> wanted) const {
    detail::count_in_table<Classes>(table, "metric::ConfusionMatrix", y, wanted);
  }
  double result(state const& table) const {
    auto right = 0.0, all = 0.0;
    for (std::size_t i = 0; i < table.size(); ++i) {
      all += table[i];
      right += i % (Classes + 1) == 0 ? table[i] : 0;
    }
    return detail::ratio(right, all);
  }
};

/// The mean over classes of the share: rows of the class that were found, of all rows that are of the class or were
/// taken for it. Classes without any such row do not count.
///
/// targets   a label, or (B, Classes)
/// throws    BadArgument if the network has another number of outputs, or a label is not of a class
/// source    tf.keras.metrics.MeanIoU(Classes, sparse_y_pred=False)
template <int Classes> struct MeanIoU {
  static_assert(Classes > 0, "chorale: metric::MeanIoU<Classes> needs at least 1 class");
  static constexpr std::string_view name     = "mean_iou";
  static constexpr std::size_t least_outputs = 2;
  using state = std::array<double, std::size_t{Classes} * Classes>;  // (wanted, taken for)

  template <class T> void update(state& table, Span<float const> y, Span<T const> wanted) const {
    detail::count_in_table<Classes>(table, "metric::MeanIoU", y, wanted);
  }
  double result(state const& table) const {
    constexpr auto n = std::size_t{Classes};
    auto sum = 0.0, classes = 0.0;
    for (std::size_t c = 0; c < n; ++c) {
      auto either = -table[c * n + c];  // it is in its row and in its column
      for (std::size_t i = 0; i < n; ++i) either += table[c * n + i] + table[i * n + c];
      sum += detail::ratio(table[c * n + c], either);
      classes += either != 0 ? 1 : 0;
    }
    return detail::ratio(sum, classes);
  }
};

/// The exponential of the mean over rows of -log softmax(logits)[label]: of T positions in a row, over all of them, as
/// loss::per_position has it.
///
/// targets   a label, or (B, classes), where each row sums to 1
/// keeps     the mean is exact: see ExactSum
/// source    keras_hub.metrics.Perplexity(from_logits=True)
struct Perplexity {
  static constexpr std::string_view name     = "perplexity";
  static constexpr std::size_t least_outputs = 2;
  static constexpr bool takes_logits         = true;
  using state                                = std::array<double, ExactSum::size + 1>;  // sum, rows

  std::optional<int> ignore_label{};  // of positions that do not count

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    if (ignore_label) visit("ignore_label", *ignore_label);
  }
  void update(state& sums, Span<float const> logits, Span<int const> label) const {
    if (label[0] == ignore_label) return;
    auto const at = detail::class_of(label);
    CHORALE_EXPECTS(at < logits.size(), "metric::Perplexity got the label " + std::to_string(label[0]) +
                                            ", but the network has outputs for 0 to " +
                                            std::to_string(logits.size() - 1));
    add(sums, log_sum(logits) - static_cast<double>(logits[at]));
  }
  void update(state& sums, Span<float const> logits, Span<float const> wanted) const {
    auto const log = log_sum(logits);
    auto entropy   = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      entropy += static_cast<double>(wanted[i]) * (log - static_cast<double>(logits[i]));
    add(sums, entropy);
  }
  double result(state const& sums) const {
    return sums.back() == 0 ? 0 : std::exp(ExactSum::value(sums) / sums.back());
  }

 private:
  static void add(state& sums, double entropy) {
    ExactSum::add(sums, static_cast<float>(entropy));
    sums.back() += 1;
  }
  static double log_sum(Span<float const> logits) {
    auto const largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    auto sum           = 0.0;
    for (auto const x : logits) sum += std::exp(static_cast<double>(x) - largest);
    return largest + std::log(sum);
  }
};

}  // namespace chorale::metric
