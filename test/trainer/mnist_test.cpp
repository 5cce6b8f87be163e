// SPDX-License-Identifier: Apache-2.0
//
// Real digits, where they are present.
#include "test/support/mnist.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

using namespace chorale;

namespace {

struct Softmax : nn::Sequential<nn::Input<784>, nn::Dense<10>> {};

}  // namespace

// The first example of TensorFlow 1: rate 0.005 on the sum over a batch of 100, which is 0.5 on its mean; 2000 steps.
TEST_CASE("softmax regression on MNIST reaches what the TensorFlow 1 example reaches", "[trainer][mnist][slow]") {
  auto const folder = mnist::folder_or_skip("softmax regression on MNIST");
  if (!folder) return;
  auto const train = data::mnist(*folder, data::train).map(data::scale).cache().shuffle(10'000, 1).batch(100).repeat(4);
  auto const test  = data::mnist(*folder, data::test).map(data::scale).batch(1'000);
  auto trainer     = Trainer{nn::compile<Softmax>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.5F},
                                                  metric::Accuracy{}),
                             MirroredStrategy{Cpu::logical(2)}, DirectAllReduce{}, LocalTransport{}, 1};
  auto const steps = trainer.fit(train, {.show = Show::nothing})[0].steps;
  auto const score = trainer.evaluate(test);
  CHECK(steps == 2'400);
  CHECK(score.rows() == 10'000);
  CHECK(score["accuracy"] > 0.91);                                         // the example prints 0.92
  CHECK(score["accuracy"] < 0.935);                                        // a linear model does no better
}
