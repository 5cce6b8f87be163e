// SPDX-License-Identifier: Apache-2.0
//
// MNIST under whatever was chosen when it was built: strategy, reduce, transport, placement and precision are settings of
// Bazel, and this file does not know them. A combination that cannot work is a sentence instead of a program.
//
//   tools/run mnist --//examples:strategy=central_storage --epochs 3
//   tools/run mnist --//examples:reduce=double_tree --//examples:precision=bf16 --replicas 2
//   tools/launch -n 2 -- tools/run mnist --//examples:strategy=multi_worker_mirrored --//examples:transport=tcp
//
// Expect what was chosen, three epochs, then a line such as
//   test: loss 0.0279 accuracy 0.9926 (5000 images)
#include "support/options.hpp"

#include "chosen.hpp"

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = chosen::flags()}, [](example::Options const& o) {
    auto strategy = chosen::strategy(o);
    std::printf("%s\nNumber of devices: %d\n", chosen::names, strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto train = rows.map(data::scale).cache().shuffle(10'000, o.seed).batch(o.batch).prefetch(2);
      auto test  = test_rows.map(data::scale).batch(256);

      auto model =
          nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
      auto trainer = Trainer{model, strategy, chosen::Reduce{}, chosen::Transport{}, o.seed};

      trainer.fit(train, {.epochs = o.epochs});
      auto const scores = trainer.evaluate(test);
      if (scores.rows() > 0) example::print_test(scores);  // a process that only serves has none
    });
  });
}
