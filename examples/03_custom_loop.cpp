// SPDX-License-Identifier: Apache-2.0
//
// A training loop of one's own: the replicas of 02_mirrored without the Trainer; the strategy ends each step.
// This is tf.distribute's strategy.run and strategy.reduce. The loop is the same under every strategy: with another one
// in `strategy`, no line below it changes.
//
//   tools/run 03_custom_loop
//   tools/run 03_custom_loop --data data/mnist --epochs 5
//
// Expect one line per epoch, then a line such as
//   test: loss 0.0279 accuracy 0.9926 (5000 images)
#include "support/options.hpp"

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

void train_and_test(example::Options const& o, auto const& rows, auto const& test_rows) {
  auto const model =
      nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
  auto strategy    = Live{MirroredStrategy{Cpu::split(o.replicas)}, RingAllReduce{}, LocalTransport{}};  // connected
  auto lenet       = strategy.create(model, o.seed);  // one copy per replica
  auto const train = rows.map(data::scale).cache().shuffle(10'000, o.seed).batch(o.batch);
  auto const test  = test_rows.map(data::scale).batch(256);

  auto const train_step = [&](auto& replica, auto& copy, Batch& batch) {
    auto [loss, gradients] = replica.value_and_gradient(copy, batch);  // Sum<float>; shaped as the variables
    strategy.update(replica, copy, gradients);                         // the one line that communicates; here
    return loss;                                                       //   replica.all_reduce(gradients);
  };  //   copy.optimizer.apply(
  auto const test_step = [](auto&, auto& copy, Batch& batch) {  //       copy.net.variables(), gradients);
    auto sums = std::array<float, plan::header>{};              // loss, rows, correct
    copy.evaluate(batch, sums);
    return Totals{} += sums;
  };

  for (int epoch = 0; epoch < o.epochs; ++epoch) {
    auto loss = metric::Mean{};
    for (auto& copy : lenet) copy.optimizer.now.epoch = epoch;
    for (auto& batch : strategy.distribute(train, epoch)) {                    // PerReplica<Batch>
      PerReplica<Sum<float>> losses = strategy.run(train_step, lenet, batch);  // all replicas at once
      loss.update(strategy.reduce(losses));                                    // weighted by rows, not by replicas
    }
    strategy.finish(lenet);  // for strategies that learn apart
    if (strategy.is_chief()) std::printf("epoch %d  loss %.4f\n", epoch + 1, loss.result());
  }

  auto totals = Totals{};
  for (auto& batch : strategy.distribute(test)) totals += strategy.reduce(strategy.run(test_step, lenet, batch));
  if (strategy.is_chief()) example::print_test(Scores{model.metric_names, totals});
}

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = {"--replicas", "--lr"}}, [](example::Options const& o) {
    example::with_digits(o, [&](auto const& rows, auto const& test_rows) { train_and_test(o, rows, test_rows); });
  });
}
