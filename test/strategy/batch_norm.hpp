// SPDX-License-Identifier: Apache-2.0
//
// Networks with batch normalization, and how far a trainer of one is from one replica with the whole batch.
#pragma once

#include "test/support/reference.hpp"

#include <chorale/nn/layers/batch_norm.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace norm {

using namespace chorale;

template <template <class...> class Norm>
struct Net : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<5, 3>, Norm<>, nn::ReLU, nn::MaxPool2D<2>, nn::Flatten,
                            nn::Dense<16>, Norm<>, nn::Tanh, nn::Dropout<30>, nn::Dense<3>> {};
using SyncNet  = Net<nn::SyncBatchNorm>;
using LocalNet = Net<nn::BatchNorm>;

template <class N, class S, class R = RingAllReduce, class T = LocalTransport>
auto learner(S strategy, R reduce = {}, T transport = {}) {
  return Trainer{nn::compile<N>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.05F}, metric::Accuracy{}),
                 std::move(strategy), reduce, transport, 7};
}

/// Batches of which some shares are uneven, and with 2 replicas and more some are empty.
inline tiny::Batches<int> uneven() {
  auto const sizes = std::vector<std::size_t>{16, 13, 2, 16, 3, 14, 15, 16, 1, 17, 16, 29, 3, 30, 15, 5, 16, 7};
  auto rows        = std::size_t{0};
  for (auto const n : sizes) rows += n;
  return {tiny::batch<int>(rows, 64, 1), sizes};
}

inline auto const watched = FitOptions{.show = Show::nothing, .compare_every = 1};  // copies are compared in each step

/// What one replica has after all of the data, and its loss then.
template <class N> std::pair<std::vector<float>, double> reference() {
  auto one = learner<N>(OneDeviceStrategy{Cpu::logical(1)[0]});
  one.fit(uneven(), watched);
  return {tiny::values_of(one), one.evaluate(uneven()).loss()};
}

/// The largest difference of any variable, relative to its largest element, but for one that is nothing but rounding:
/// what a bias in front of a normalization adds is taken away again.
inline double difference(Span<PlannedVariable const> plan, Span<float const> values, Span<float const> expected) {
  auto worst = 0.0;
  for (auto const& v : plan) {
    double apart = 0, largest = 0;
    for (auto i = v.offset - plan::header; i < v.end() - plan::header; ++i) {
      apart   = std::max(apart, static_cast<double>(std::abs(values[i] - expected[i])));
      largest = std::max(largest, static_cast<double>(std::abs(expected[i])));
    }
    worst = std::max(worst, largest < 1e-5 ? apart : apart / largest);
  }
  return worst;
}

template <class N = SyncNet, class Trainer> void check_like_one(Trainer trainer) {
  static auto const one = reference<N>();
  auto const fit        = trainer.fit(uneven(), watched);
  CHECK(fit[0].scores.rows() == 234);
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  CHECK(difference(N::plan.variables, tiny::values_of(trainer), one.first) < 1e-5);
  CHECK(trainer.evaluate(uneven()).loss() == Approx(one.second).epsilon(1e-5));
}

}  // namespace norm
