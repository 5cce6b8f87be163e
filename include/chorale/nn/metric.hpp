// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/sum.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

/// Metrics. A metric of a model returns a sum over rows; its mean over all rows of all replicas is exact.
namespace chorale::metric {

/// The share of rows whose largest output is that of the target's class.
///
/// source  tf.keras.metrics.SparseCategoricalAccuracy, CategoricalAccuracy
struct Accuracy {
  static constexpr std::string_view name = "accuracy";

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
  void   reset() { *this = {}; }

 private:
  double value_       = 0;
  std::int64_t count_ = 0;
};

}  // namespace chorale::metric
