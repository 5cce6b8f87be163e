// SPDX-License-Identifier: Apache-2.0
//
// MNIST on every NVIDIA GPU: one replica per GPU, each with a copy of every variable, in step. Four lines differ from
// ../02_mirrored: the devices, where batches wait, how gradients combine, and in what it computes, which is chosen when
// it is built.
//
//   bazel run --config=cuda //examples/gpu:02_mirrored -- --data $PWD/data/mnist        float
//   bazel run --config=cuda //examples/gpu:02_mirrored_bf16                             bf16
//
// Expect the number of devices, three epochs, then a line such as
//   test: loss 0.0279 accuracy 0.9926 (5000 images)
#include "../support/options.hpp"

#include <chorale/data/stages/to_cuda.hpp>
#include <chorale/device/cuda.hpp>
#include <chorale/tensor/cuda/all.hpp>
#include <chorale/transport/nccl.hpp>

#ifndef PRECISION
#define PRECISION float
#endif

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = {"--lr", "--checkpoints", "--shift"}}, [](example::Options const& o) {
    auto strategy = MirroredStrategy{Cuda::all()};
    std::printf("Number of devices: %d\n", strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto digits = rows.map(data::scale).cache().map(example::shifted(o));
      auto train  = data::on_cuda(digits.shuffle(10'000, o.seed).batch(o.batch), Cuda{0}).prefetch(2);
      auto test   = test_rows.map(data::scale).batch(256);

      auto model = nn::compile<LeNet, nn::Precision<PRECISION>>(
          loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
      auto trainer = Trainer{model, strategy, NativeAllReduce{}, NcclTransport{.devices = Cuda::all()}, o.seed};

      trainer.fit(train, {.epochs = o.epochs, .checkpoints = {.folder = o.checkpoints}});
      example::print_test(trainer.evaluate(test));
    });
  });
}
