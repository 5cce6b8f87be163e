// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

namespace chorale {

/// Time of a step whose last bucket of gradients is reduced: each bucket is sent when it is final and the one before it
/// is reduced.
///
///   computing   | forward: a third | backward: bucket 0 | bucket 1 | bucket 2 |
///   sending                                             |   0   |  |   1   |  |   2   |
///
/// Time        a number or a std::chrono::duration, of any unit
/// compute     forward and backward
/// one_bucket  the all-reduce of one bucket
template <class Time> constexpr Time step_time(Time compute, Time one_bucket, int buckets) {
  auto end = Time{};
  for (int i = 1; i <= buckets; ++i) end = std::max(end, compute / 3 + compute * 2 / 3 * i / buckets) + one_bucket;
  return std::max(end, compute);
}

/// Predicts the time of a step from the measured times of its parts.
struct StepPrediction {
  double all_reduce;  // seconds, of all gradients
  int buckets;        // in which backward sends them

  /// compute   seconds of forward and backward
  double seconds(double compute) const { return step_time(compute, all_reduce / buckets, buckets); }
};

}  // namespace chorale
