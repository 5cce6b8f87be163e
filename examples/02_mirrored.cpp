// SPDX-License-Identifier: Apache-2.0
//
// MNIST on every core: one replica per core, each with a copy of every variable, in step. Two lines differ from
// 01_one_device: the strategy, and how many devices it gets.
//
//   tools/run                                                                   drawn digits, one replica per core
//   tools/run 02_mirrored --data data/mnist --epochs 12 --lr decay --shift 1    0.990 on MNIST
//
// Expect the number of threads, of devices, three epochs, then a line such as
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
  auto const defaults = example::Options{.flags = {"--replicas", "--lr", "--checkpoints", "--shift"}};
  return example::run(argc, argv, defaults, [](example::Options const& o) {
    auto strategy = MirroredStrategy{Cpu::split(o.replicas)};
    std::printf("Number of devices: %d\n", strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto digits = rows.map(data::scale).cache().map(example::shifted(o));
      auto train  = digits.shuffle(10'000, o.seed).batch(o.batch).prefetch(2);
      auto test   = test_rows.map(data::scale).batch(256);

      auto model =
          nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
      auto trainer = Trainer{model, strategy, DirectAllReduce{}, LocalTransport{}, o.seed};

      trainer.fit(train, {.epochs = o.epochs, .checkpoints = {.folder = o.checkpoints}});
      example::print_test(trainer.evaluate(test));
    });
  });
}
