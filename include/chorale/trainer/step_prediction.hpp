// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/advise.hpp>

namespace chorale {

/// What a step should take, from what its parts take alone.
struct StepPrediction {
  double all_reduce;                                                       // seconds, of all gradients
  int buckets;                                                             // in which they leave during backward

  /// compute   seconds
  double seconds(double compute) const {
    return chorale::seconds(step_time(virtual_seconds(compute), virtual_seconds(all_reduce / buckets), buckets));
  }
};

}  // namespace chorale
