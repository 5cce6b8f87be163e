// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/sum.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

/// Metrics. A metric of a model returns a sum over rows; its mean over all rows of all replicas is exact. A custom
/// metric is a type with one function of a row, see RowMetric, or, if its result is not a mean over rows, a type with a
/// state, see StateMetric; metrics of the library may have
///
///   name                                  in the history, and where scores are shown
///   sum(rows, width, output, target)      the sum over rows
///   queue<D>(.., sum)                     sum, enqueued on a device that QueuesWork
///   least_outputs                         the fewest outputs that it tells apart; nn::compile refuses a network with
///                                         fewer
///   takes_logits                          true if it applies softmax itself: as for a loss
///   check_outputs(probabilities)          throws if its options are for logits, and the outputs are probabilities, or
///                                         the reverse
///
/// Callers use sum_of(metric, ..), which takes both forms.
namespace chorale::metric {

/// A metric that is one function of a row, for targets of type T.
///
///   struct Largest {
///     static constexpr std::string_view name = "largest";
///     float row(Span<float const> y, Span<int const> wanted) const;       // its part of the sum
///   };
template <class M, class T>
concept RowMetric = requires(M const& metric, Span<float const> y, Span<T const> wanted) {
  { M::name } -> std::convertible_to<std::string_view>;
  { metric.row(y, wanted) } -> std::convertible_to<float>;
};

namespace detail {

template <class M, class T>
float sum_of_rows(M const& metric, std::size_t rows, std::size_t width, float const* y, T const* wanted,
                  std::size_t targets) {
  return static_cast<float>(sum_over(rows, [&](std::size_t r) -> float {
    return metric.row(Span<float const>{y + r * width, width}, Span<T const>{wanted + r * targets, targets});
  }));
}

template <class T> std::size_t targets_of(std::size_t width) { return std::is_integral_v<T> ? 1 : width; }

/// Checks the threshold of a metric whose outputs are probabilities.
///
/// throws  BadArgument when all outputs are on the same side of it
inline void check_threshold(std::string const& metric, float threshold, bool probabilities) {
  CHORALE_EXPECTS(!probabilities || (threshold > 0 && threshold < 1),
                  metric + " has the threshold " + number_text(threshold) +
                      ", which is one of logits, but the output "
                      "that it looks at ends with probabilities from 0 to 1: write " +
                      metric + "{.threshold = 0.5F}");
}

/// A name with a number, which is 0 or more: "top_5_accuracy".
constexpr Name numbered(std::string_view before, int number, std::string_view after) {
  auto text   = Name{before};
  auto digits = std::array<char, 10>{};
  auto n      = std::size_t{0};
  do digits[n++] = static_cast<char>('0' + number % 10);
  while ((number /= 10) > 0);
  while (n > 0) text += std::string_view{&digits[--n], 1};
  return text += after;
}

}  // namespace detail

/// The sum of a metric over rows: of a metric in either form.
///
/// y         (rows, width)
/// wanted    (rows, targets): as many as the loss has; 0: one label, or as many numbers as outputs
template <class M, class T>
float sum_of(M const& metric, std::size_t rows, std::size_t width, float const* y, T const* wanted,
             std::size_t targets = 0) {
  if constexpr (requires { metric.sum(rows, width, y, wanted); }) {
    return metric.sum(rows, width, y, wanted);
  } else {
    static_assert(
        RowMetric<M, T>,
        "chorale: a metric needs a name, and float row(Span<float const> y, Span<target const> wanted) const, "
        "with the targets of the loss. See docs/60-write-your-own.md");
    if constexpr (RowMetric<M, T>)
      return detail::sum_of_rows(metric, rows, width, y, wanted, targets == 0 ? detail::targets_of<T>(width) : targets);
    else return 0;
  }
}

/// The share of rows whose largest output belongs to the target's class.
///
/// source  tf.keras.metrics.SparseCategoricalAccuracy, CategoricalAccuracy
struct Accuracy {
  static constexpr std::string_view name     = "accuracy";
  static constexpr std::size_t least_outputs = 2;

  float sum(std::size_t rows, std::size_t classes, float const* output, int const* labels) const {
    auto right = 0;
    for (std::size_t r = 0; r < rows; ++r)
      right += top(classes, output + r * classes) == static_cast<std::size_t>(labels[r]) ? 1 : 0;
    return static_cast<float>(right);
  }
  float sum(std::size_t rows, std::size_t classes, float const* output, float const* targets) const {
    auto right = 0;
    for (std::size_t r = 0; r < rows; ++r)
      right += top(classes, output + r * classes) == top(classes, targets + r * classes) ? 1 : 0;
    return static_cast<float>(right);
  }

  /// Enqueues the count on a device that QueuesWork, so that the outputs need not be copied to the host.
  template <class D>
  static void queue(std::size_t rows, std::size_t classes, float const* output, int const* labels, SumOfRows to) {
    Kernels<D>::hits(rows, classes, output, labels, to);
  }

 private:
  static std::size_t top(std::size_t n, float const* x) {
    return static_cast<std::size_t>(std::max_element(x, x + n) - x);
  }
};

/// The share of outputs on the right side of a threshold: above it, where the target is 1.
///
/// targets   (B, width), each 0 or 1
/// source    tf.keras.metrics.BinaryAccuracy, whose threshold is for probabilities: 0.5
struct BinaryAccuracy {
  static constexpr std::string_view name = "binary_accuracy";

  float threshold = 0;  // of logits; 0.5 of probabilities

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const { visit("threshold", threshold); }
  void check_outputs(bool probabilities) const {
    detail::check_threshold("metric::BinaryAccuracy", threshold, probabilities);
  }

  float row(Span<float const> y, Span<float const> wanted) const {
    auto right = 0;
    for (std::size_t i = 0; i < y.size(); ++i) right += (y[i] > threshold) == (wanted[i] > 0.5F) ? 1 : 0;
    return static_cast<float>(right) / static_cast<float>(y.size());
  }
  float sum(std::size_t rows, std::size_t width, float const* output, float const* targets) const {
    return detail::sum_of_rows(*this, rows, width, output, targets, width);
  }
};

/// The mean over outputs of |output - target|.
///
/// source  tf.keras.metrics.MeanAbsoluteError
struct MeanAbsoluteError {
  static constexpr std::string_view name = "mean_absolute_error";

  float row(Span<float const> y, Span<float const> wanted) const {
    auto const sum = sum_over(y.size(), [&](std::size_t i) { return std::abs(y[i] - wanted[i]); });
    return static_cast<float>(sum / static_cast<double>(y.size()));
  }
  float sum(std::size_t rows, std::size_t width, float const* output, float const* targets) const {
    return detail::sum_of_rows(*this, rows, width, output, targets, width);
  }
};

/// The share of rows in which fewer than K outputs are larger than the output of the target's class.
///
/// source  tf.keras.metrics.SparseTopKCategoricalAccuracy, TopKCategoricalAccuracy
template <int K> struct TopKAccuracy {
  static_assert(K > 0, "chorale: metric::TopKAccuracy<K> needs at least 1");
  static constexpr Name long_name            = detail::numbered("top_", K, "_accuracy");
  static constexpr std::string_view name     = long_name;  // "top_5_accuracy"
  static constexpr std::size_t least_outputs = K + 1;

  float row(Span<float const> y, Span<int const> label) const { return hit(y, static_cast<std::size_t>(label[0])); }
  float row(Span<float const> y, Span<float const> wanted) const {
    return hit(y, static_cast<std::size_t>(std::max_element(wanted.begin(), wanted.end()) - wanted.begin()));
  }
  template <class T> float sum(std::size_t rows, std::size_t classes, float const* output, T const* targets) const {
    return detail::sum_of_rows(*this, rows, classes, output, targets, detail::targets_of<T>(classes));
  }

 private:
  static float hit(Span<float const> y, std::size_t label) {
    if (label >= y.size()) return 0;  // one that loss::ignore_label names
    return std::count_if(y.begin(), y.end(), [&](float x) { return x > y[label]; }) < K ? 1.0F : 0.0F;
  }
};

/// The running mean of a value, for custom training loops.
///
///   metric::Mean loss;   loss.update(strategy.reduce(losses));   loss.result()
///
/// source  tf.keras.metrics.Mean
class Mean {
 public:
  void update(Sum<float> const& sum) {
    value_ += static_cast<double>(sum.value);
    count_ += sum.count;
  }
  double result() const { return count_ == 0 ? 0.0 : value_ / static_cast<double>(count_); }
  void reset() { *this = {}; }

 private:
  double value_       = 0;
  std::int64_t count_ = 0;
};

}  // namespace chorale::metric
