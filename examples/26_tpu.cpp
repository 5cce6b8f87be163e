// SPDX-License-Identifier: Apache-2.0
//
// MNIST on the eight cores of a TPU host, or on eight CPU devices of XLA: one program for a whole step runs on all of
// them, sums of gradients and update included. Two lines differ from 02_mirrored: the devices, and the strategy. It needs
// a PJRT plug-in, which CHORALE_PJRT_PLUGIN names; docs/46-tpu.md says how to get one.
//
//   CHORALE_PJRT_PLUGIN=libpjrt_cpu.so tools/run 26_tpu                             drawn digits
//   CHORALE_PJRT_PLUGIN=libpjrt_cpu.so tools/run 26_tpu --data data/mnist           MNIST
//
// Expect the platform and the number of devices, three epochs, then a line such as
//   test: loss 0.0381 accuracy 0.9882 (5000 images)
// Without a plug-in: a sentence that says so.
#include "support/options.hpp"

#include <chorale/pjrt/tpu.hpp>

#include <cstdlib>

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

int main(int argc, char** argv) {
  auto const defaults = example::Options{.flags = {"--lr", "--checkpoints", "--shift"}};
  return example::run(argc, argv, defaults, [](example::Options const& o) {
    auto const path    = pjrt::Plugin::path_from_environment();
    auto const devices = Pjrt::open(path, {.devices = 8});  // of a TPU host, those that it has
    auto strategy      = TPUStrategy<8>{devices};
    std::printf("%s: %d devices\n", devices.client().platform().c_str(), strategy.num_replicas());

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
