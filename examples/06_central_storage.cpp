// SPDX-License-Identifier: Apache-2.0
//
// MNIST on every core with one copy of the variables, which all replicas read and the parameter device updates. What
// differs from 02_mirrored is the strategy.
//
//   tools/run 06_central_storage
//   tools/run 06_central_storage --data data/mnist --epochs 5 --replicas 2
//
// Expect the number of devices, three epochs, then a line such as
//   test: loss 0.0279 accuracy 0.9926 (5000 images)
#include "support/options.hpp"

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = {"--replicas", "--lr", "--checkpoints"}}, [](example::Options const& o) {
    auto strategy = CentralStorageStrategy{Cpu::split(o.replicas), Cpu{}};
    std::printf("Number of devices: %d\n", strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto train = rows.map(data::scale).cache().shuffle(10'000, o.seed).batch(o.batch).prefetch(2);
      auto test  = test_rows.map(data::scale).batch(256);

      auto model =
          nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
      auto trainer = Trainer{model, strategy, DirectAllReduce{}, LocalTransport{}, o.seed};

      trainer.fit(train, {.epochs = o.epochs, .checkpoints = {.folder = o.checkpoints}});
      example::print_test(trainer.evaluate(test));
    });
  });
}
