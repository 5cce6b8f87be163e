// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/step_time.hpp>

namespace chorale {

/// Predicts the time of a step from the measured times of its parts.
struct StepPrediction {
  double all_reduce;                                                       // seconds, of all gradients
  int buckets;                                                             // in which backward sends them

  /// compute   seconds of forward and backward
  double seconds(double compute) const { return step_time(compute, all_reduce / buckets, buckets); }
};

}  // namespace chorale
