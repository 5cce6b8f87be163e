// SPDX-License-Identifier: Apache-2.0
//
// Real digits, where they are present.
#include "test/support/mnist.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace chorale;

namespace {

/// y = x W + b with W = 0 and b = 0 at first: logits of the softmax.
struct Softmax : nn::Sequential<nn::Input<784>, nn::Dense<10, nn::Initializer<Init::zeros>>> {};

/// Pixels become numbers from 0 to 1, and a label ten numbers, of which one is 1.
void one_hot(Sample<std::uint8_t, std::uint8_t> const& row, std::vector<float>& x, std::vector<float>& y) {
  x.resize(row.x.size());
  std::transform(row.x.begin(), row.x.end(), x.begin(), [](auto pixel) { return static_cast<float>(pixel) / 255; });
  y.assign(10, 0.0F);
  y.at(row.y[0]) = 1;
}

}  // namespace

// The first example of TensorFlow 1: weights and biases zero, one-hot labels, batches of 100, 2,000 steps at rate 0.005
// on 1,000 times the mean over the 100 · 10 products of the cross-entropy. That is the sum over the batch, so the rate
// is 0.5 for its mean over rows.
TEST_CASE("softmax regression on MNIST reaches what the TensorFlow 1 example reaches", "[trainer][mnist]") {
  auto const folder = mnist::folder_or_skip("softmax regression on MNIST");
  if (!folder) return;
  auto const rows  = [&](auto const& which) { return data::mnist(*folder, which).template map<float, float>(one_hot); };
  auto const train = rows(data::train).cache().shuffle(10'000, 1).batch(100).repeat(4).take(2'000);
  auto const test  = rows(data::test).batch(1'000);
  auto trainer =
      Trainer{nn::compile<Softmax>(loss::CrossEntropy{}, optim::SGD{.learning_rate = 0.5F}, metric::Accuracy{}),
              MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{}, LocalTransport{}, 1};
  for (auto const value : trainer.copies()[0].net.variables().body()) REQUIRE(value == 0.0F);
  auto const history = trainer.fit(train, {.show = Show::nothing});
  auto const score   = trainer.evaluate(test);
  CHECK(history[0].steps == 2'000);
  CHECK(trainer.step() == 2'000);
  CHECK(history[0].scores.rows() == 200'000);
  CHECK(score.rows() == 10'000);
  CHECK(score["accuracy"] > 0.91);   // the example prints 0.92
  CHECK(score["accuracy"] < 0.935);  // a linear model does no better
}
