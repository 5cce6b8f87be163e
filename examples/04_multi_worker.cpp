// SPDX-License-Identifier: Apache-2.0
//
// MNIST on many workers, each a process, here or on other hosts: gradients travel by TCP. What differs from
// 02_mirrored is the strategy, which asks the environment who the workers are, and the transport.
//
//   tools/launch -n 2 -- tools/run 04_multi_worker                              two workers on this host
//   TF_CONFIG='{"cluster": {"worker": ["10.0.0.7:2222", "10.0.0.8:2222"]}, "task": {"type": "worker", "index": 0}}'
//     tools/run 04_multi_worker                                                 and with index 1 on the other host
//
// Expect a line that says who is who, epochs from the chief, then from every worker a line such as
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
    auto strategy = MultiWorkerMirroredStrategy{Cluster::from_env()};
    std::printf("%s\nNumber of devices: %d\n", strategy.cluster().text().c_str(), strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto train = rows.map(data::scale).cache().shuffle(10'000, o.seed).batch(o.batch).prefetch(2);
      auto test  = test_rows.map(data::scale).batch(256);

      auto model =
          nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
      auto trainer = Trainer{model, strategy, RingAllReduce{}, TcpTransport{}, o.seed};

      trainer.fit(train, {.epochs = o.epochs, .checkpoints = {.folder = o.checkpoints}});
      example::print_test(trainer.evaluate(test));
    });
  });
}
