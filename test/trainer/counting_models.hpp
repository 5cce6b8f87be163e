// SPDX-License-Identifier: Apache-2.0
//
// Models with metrics that have a state, for tests of them.
#pragma once

#include "test/support/reference.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <vector>

namespace counting {

using namespace chorale;

/// A metric of one's own: the range of the largest outputs, which is no mean.
struct Spread {
  static constexpr std::string_view name = "spread";
  using state                            = std::array<double, 3>;  // rows, sum, sum of squares

  float scale = 64;

  void options(auto&& visit) const { visit("scale", scale); }
  template <class T> void update(state& sums, Span<float const> y, Span<T const>) const {
    auto const x = std::round(static_cast<double>(scale * *std::max_element(y.begin(), y.end())));
    sums[0] += 1, sums[1] += x, sums[2] += x * x;
  }
  double result(state const& sums) const {
    return sums[0] == 0 ? 0 : std::sqrt(sums[2] / sums[0] - sums[1] * sums[1] / (sums[0] * sums[0]));
  }
};

struct Binary : nn::Sequential<nn::Input<8, 8, 1>, nn::Flatten, nn::Dense<6>, nn::Tanh, nn::Dense<1>> {};

inline auto classes() {
  return nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{}, metric::Accuracy{},
                                  metric::ConfusionMatrix<3>{}, metric::F1Of<1>{}, metric::MeanIoU<3>{},
                                  metric::Perplexity{}, Spread{});
}
inline auto binary() {
  return nn::compile<Binary>(loss::BinaryCrossEntropy{}, optim::Adam{}, metric::Precision{}, metric::Recall{},
                             metric::F1{}, metric::AUC<>{}, metric::RootMeanSquaredError{}, metric::BinaryAccuracy{},
                             Spread{});
}

inline tiny::Batches<float> binary_rows() {
  auto const labels = tiny::uneven();
  auto data         = tiny::Batches<float>{tiny::batch<float>(labels.rows.rows, 64, 1), labels.sizes};
  for (auto& y : data.rows.y) y = std::round(y);
  return data;
}

inline std::vector<double> all_of(Scores const& scores) {
  auto all = std::vector<double>{scores.loss()};
  for (std::size_t i = 0; i < scores.metrics(); ++i) all.push_back(scores.metric(i));
  return all;
}
inline std::vector<double> counted(Scores const& scores, std::string_view name) {
  auto const counts = scores.counts(name);
  return {counts.begin(), counts.end()};
}
inline double sum_of(std::vector<double> const& all) { return std::accumulate(all.begin(), all.end(), 0.0); }

template <class Model, class S, class R = Reproducible<8>, class T = LocalTransport>
auto trainer_of(Model model, S strategy, R reduce = {}, T transport = {}) {
  return Trainer{model, strategy, reduce, transport, 7};
}

/// Checks 2, 3 and 4 replicas against one, whose steps have the same bits. In evaluate the outputs of a row may differ
/// in the last bit with the number of rows beside it, so that only what is counted is equal: in `exact` metrics.
template <class Data, class Make>
void check_replicas(Data const& data, Make const& make, std::vector<std::string_view> const& exact) {
  auto one            = make(1);
  auto const expected = one.fit(data, {.epochs = 2, .show = Show::nothing});
  auto const tested   = one.evaluate(data);
  for (auto const replicas : {2, 3, 4}) {
    INFO(replicas << " replicas");
    auto some       = make(replicas);
    auto const here = some.fit(data, {.epochs = 2, .show = Show::nothing});
    REQUIRE(some.hashes()[0] == one.hashes()[0]);
    for (std::size_t epoch = 0; epoch < 2; ++epoch)
      for (std::size_t i = 0; i < expected[0].scores.metrics(); ++i) {
        INFO(expected[0].scores.name(i));
        CHECK(here[epoch].scores.metric(i) == expected[epoch].scores.metric(i));
      }
    CHECK(all_of(here.back().scores) == all_of(expected.back().scores));
    auto const scores = some.evaluate(data);
    for (std::size_t i = 0; i < scores.metrics(); ++i) {
      INFO(scores.name(i));
      CHECK(scores.metric(i) == Approx(tested.metric(i)).epsilon(1e-6));
    }
    for (auto const name : exact) CHECK(counted(scores, name) == counted(tested, name));
  }
}

}  // namespace counting
