// SPDX-License-Identifier: Apache-2.0
//
// Workers that train and an evaluator that follows their checkpoints, one program: what differs from 04_multi_worker is
// that a task of role evaluator does not join the others, but looks at their folder.
//
//   tools/launch -n 2 --evaluator --grace 60 -- tools/run 07_evaluator --checkpoints run/mnist
//
// Expect from the evaluator a line for each checkpoint, such as
//   after 313 updates: loss 0.0998  accuracy 0.9724
// and from every worker a line such as
//   test: loss 0.0279 accuracy 0.9926 (5000 images)
#include "support/options.hpp"

#include <chorale/cluster/from_env.hpp>
#include <chorale/transport/tcp.hpp>

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = {"--lr", "--checkpoints"}}, [](example::Options const& o) {
    auto const cluster     = Cluster::from_env();
    auto const checkpoints = CheckpointOptions{.folder = o.checkpoints};
    auto const model =
        nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto const test = test_rows.map(data::scale).batch(256);

      if (cluster.task().role == Role::evaluator) {
        if (o.checkpoints.empty())
          throw BadArgument{"an evaluator follows a folder of checkpoints.", "--checkpoints DIR"};
        auto evaluator = Trainer{model, OneDeviceStrategy{}};
        evaluate_checkpoints(evaluator, test, {.checkpoints = checkpoints, .epochs = o.epochs},
                             [](CheckpointScores const& one) {
                               std::cout << "after " << one.step << " updates: " << one.scores << std::endl;
                             });
        return;
      }

      auto const train = rows.map(data::scale).cache().shuffle(10'000, o.seed).batch(o.batch).prefetch(2);
      auto trainer     = Trainer{model, MultiWorkerMirroredStrategy{cluster}, RingAllReduce{}, TcpTransport{}, o.seed};
      trainer.fit(train, {.epochs = o.epochs, .checkpoints = checkpoints});
      example::print_test(trainer.evaluate(test));
    });
  });
}
