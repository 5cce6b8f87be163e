// SPDX-License-Identifier: Apache-2.0
//
// A module of libtorch as the model: the same CNN as in 02_mirrored, written with torch::nn, on one replica per core. The
// strategy, the reduce, the transport and the optimizer are this library's.
//
//   tools/run 13_libtorch                                    drawn digits, one replica per core
//   tools/run 13_libtorch --data data/mnist --replicas 2     MNIST
//
// It needs libtorch: Debian's libtorch-dev, the torch package of python3, or the folder that CHORALE_LIBTORCH names.
// Expect the number of threads, of devices, three epochs, then a line such as
//   test: loss 0.0537 accuracy 0.9852 (5000 images)
#ifdef CHORALE_HAVE_LIBTORCH
#include <chorale/libtorch/model.hpp>

#include "support/options.hpp"

#include <array>
#include <string_view>

using namespace chorale;

struct LeNetImpl : torch::nn::Module {
  torch::nn::Conv2d conv2d{torch::nn::Conv2dOptions(1, 32, 3)};
  torch::nn::Linear dense{32 * 13 * 13, 64}, dense_1{64, 10};

  LeNetImpl() {
    register_module("conv2d", conv2d);
    register_module("dense", dense);
    register_module("dense_1", dense_1);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv2d(x)), 2);  // (B, 1, 28, 28) -> (B, 32, 13, 13)
    return dense_1(torch::relu(dense(x.flatten(1))));  // (B, 5408) -> (B, 10) logits
  }
};
TORCH_MODULE(LeNet);

/// Cross entropy, and the number of right answers: sums over the rows.
struct Digits {
  static constexpr std::array<std::string_view, 1> metric_names{"accuracy"};

  std::array<torch::Tensor, 2> operator()(LeNet& net, Batch const& batch) const {
    auto const images = libtorch::tensor(batch.x, {-1, 1, 28, 28});
    auto const labels = libtorch::tensor(batch.y, {-1}).to(torch::kLong);
    auto const logits = net(images);
    return {torch::nll_loss(logits.log_softmax(1), labels, {}, at::Reduction::Sum), logits.argmax(1).eq(labels).sum()};
  }
};

int main(int argc, char** argv) {
  auto const defaults = example::Options{.flags = {"--replicas", "--lr", "--checkpoints", "--shift"}};
  return example::run(argc, argv, defaults, [](example::Options const& o) {
    auto strategy = MirroredStrategy{Cpu::split(o.replicas)};
    std::printf("Number of devices: %d\n", strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto digits = rows.map(data::scale).cache().map(example::shifted(o));
      auto train  = digits.shuffle(10'000, o.seed).batch(o.batch).prefetch(2);
      auto test   = test_rows.map(data::scale).batch(256);

      auto model   = libtorch::model<Batch>([] { return LeNet{}; }, Digits{}, optim::Adam{.learning_rate = o.rate()});
      auto trainer = Trainer{model, strategy, DirectAllReduce{}, LocalTransport{}, o.seed};

      trainer.fit(train, {.epochs = o.epochs, .checkpoints = {.folder = o.checkpoints}});
      example::print_test(trainer.evaluate(test));
    });
  });
}

#else

#include <cstdio>

int main() {
  std::fputs(
      "chorale: 13_libtorch needs libtorch, which was absent when this was built.\n"
      "         Try: apt-get install libtorch-dev, or CHORALE_LIBTORCH=FOLDER, and then tools/run 13_libtorch\n",
      stderr);
  return 2;
}

#endif
