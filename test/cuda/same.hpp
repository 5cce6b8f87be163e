// SPDX-License-Identifier: Apache-2.0
//
// A model on a GPU beside the same model on the CPU.
#pragma once

#include <chorale/data/stages/batch.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/metrics/metric.hpp>
#include <chorale/tensor/cpu/all.hpp>
#include <chorale/tensor/cuda/all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <vector>

namespace chorale::test {

inline constexpr std::size_t rows = 12;

/// The largest difference, relative to the largest of the numbers that are wanted, or to `least` where all are smaller.
inline double apart(Span<float const> got, Span<float const> want, double least = 1e-6) {
  REQUIRE(got.size() == want.size());
  auto difference = 0.0, largest = least;
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    largest    = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return std::isfinite(difference) ? difference / largest : std::numeric_limits<double>::infinity();
}

template <class Target> struct Rows {
  std::vector<float> x;
  std::vector<Target> y;

  Rows(std::size_t width, std::size_t targets) : x(rows * width), y(rows * targets) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{5, 0}.uniform(i, -1, 1);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if constexpr (std::is_integral_v<Target>) y[i] = static_cast<Target>(i % 3);
      else y[i] = 1.0F / static_cast<float>(targets);
    }
  }
  BasicBatch<float, Target> batch() const { return {.x = x, .y = y, .rows = rows}; }
};

/// Two steps on both devices; 1e-4 is what the orders of their sums may differ by, and more than TF32 would.
///
/// least     a gradient that is smaller is nothing but rounding
template <class Net, class Loss, class Optimizer>
void check_same(Cuda const& gpu, Loss loss, Optimizer optimizer, double least = 1e-6) {
  auto const scope = Cuda::Scope{gpu};
  auto const model = nn::compile<Net>(loss, optimizer, metric::Accuracy{});
  auto ours        = model.instantiate(gpu, 3);
  auto theirs      = model.instantiate(Cpu{}, 3);
  auto const data  = Rows<typename Loss::target>{Net::input::size, Loss::targets(Net::output::size)};
  for (int step = 0; step < 2; ++step) {
    auto const got  = ours.value_and_gradient(data.batch(), 0, [](std::size_t) {}, Together{});
    auto const want = theirs.value_and_gradient(data.batch(), 0, [](std::size_t) {}, Together{});
    CHECK(got.mean() == Approx(want.mean()).epsilon(1e-4));
    CHECK(ours.gradients().header().metric(0) == theirs.gradients().header().metric(0));
    for (std::size_t i = 0; i < Net::plan.variables.size(); ++i) {
      INFO(std::string_view{Net::plan.variables[i].name});
      CHECK(apart(ours.gradients()[i], theirs.gradients()[i], least) < 1e-4);
    }
    ours.optimizer.apply(ours.net.variables(), ours.gradients());
    theirs.optimizer.apply(theirs.net.variables(), theirs.gradients());
    CHECK(apart(ours.net.variables().values, theirs.net.variables().values) < 1e-4);
  }
  CHECK(apart(ours.predict(data.batch()), theirs.predict(data.batch())) < 1e-4);
}

}  // namespace chorale::test
