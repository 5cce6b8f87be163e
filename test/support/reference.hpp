// SPDX-License-Identifier: Apache-2.0
//
// How far a trainer is from the reference: the same program on one replica with the whole batch.
#pragma once

#include "test/support/tiny.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tiny {

inline auto const quietly = FitOptions{.show = Show::nothing};

/// Batches of 12 rows.
inline Batches<int> some(std::size_t batches = 3) {
  return {batch<int>(batches * 12, 64, 1), std::vector<std::size_t>(batches, 12)};
}

/// 20 batches, most of which divide by no number of replicas; with 2 replicas and more some shares are empty.
inline Batches<int> uneven() {
  auto const sizes =
      std::vector<std::size_t>{16, 13, 16, 3, 14, 15, 16, 1, 16, 17, 16, 29, 16, 2, 30, 15, 16, 5, 16, 7};
  auto rows = std::size_t{0};
  for (auto const n : sizes) rows += n;
  return {batch<int>(rows, 64, 1), sizes};
}

/// Small, without dropout's help: SGD, so that a wrong scale shows.
inline auto learner() {
  return nn::compile<Small>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F}, metric::Accuracy{});
}

/// A trainer of learner() under any strategy.
template <class S, class R = RingAllReduce, class T = LocalTransport>
auto learner_under(S strategy, R reduce = {}, T transport = {}) {
  return Trainer{learner(), std::move(strategy), reduce, transport, 7};
}

/// The values of all variables of the first local replica, or of all shards.
template <class Trainer> std::vector<float> values_of(Trainer& trainer) {
  auto const body = trainer.variables().body();
  return {body.begin(), body.end()};
}

/// What one replica has after all of `data`.
inline std::vector<float> reference(Batches<int> const& data) {
  auto one = learner_under(OneDeviceStrategy{Cpu::logical(1)[0]});
  one.fit(data, quietly);
  return values_of(one);
}

/// The largest difference of any element of any variable, relative to the largest element of that variable.
inline double difference(Span<float const> values, Span<float const> expected) {
  auto worst = 0.0;
  for (auto const& v : Small::plan.variables) {
    double apart = 0, largest = 0;
    for (auto i = v.offset - plan::header; i < v.end() - plan::header; ++i) {
      apart   = std::max(apart, static_cast<double>(std::abs(values[i] - expected[i])));
      largest = std::max(largest, static_cast<double>(std::abs(expected[i])));
    }
    worst = std::max(worst, largest == 0 ? apart : apart / largest);
  }
  return worst;
}

}  // namespace tiny
