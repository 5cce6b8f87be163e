// SPDX-License-Identifier: Apache-2.0
//
// MNIST with parameter servers: workers compute, servers hold the variables, and nobody waits for anybody. What differs
// from 04_multi_worker is the strategy. Every process runs this program; which of them serves the cluster says.
//
//   tools/launch -n 2 --ps 2 -- tools/run 05_parameter_server --epochs 5       two workers, two servers, this host
//
// Expect epochs from the chief, from every worker a line such as
//   test: loss 0.0279 accuracy 0.9926 (5000 images)
// and from every server how many updates it made, and how old the values were that gradients came from, such as
//   server 0 of 2: 3130 updates, 0 dropped, 0 workers lost; staleness 0: 12.3 %, 1: 86.1 %, 2: 1.6 %
#include "support/options.hpp"

#include <chorale/cluster/from_env.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/tcp.hpp>

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = {"--lr"}}, [](example::Options const& o) {
    auto strategy = ParameterServerStrategy{example::with_server(Cluster::from_env()), Asynchronous{}};
    std::printf("%s\nNumber of devices: %d\n", strategy.cluster().text().c_str(), strategy.num_replicas());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto train = rows.map(data::scale).cache().shuffle(10'000, o.seed).batch(o.batch).prefetch(2);
      auto test  = test_rows.map(data::scale).batch(256);

      auto model =
          nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
      auto trainer = Trainer{model, strategy, RingAllReduce{}, TcpTransport{}, o.seed};

      trainer.fit(train, {.epochs = o.epochs});
      auto const scores = trainer.evaluate(test);
      for (auto const& report : trainer.live().served())
        std::printf("%s\n", report.text(strategy.cluster().servers()).c_str());
      if (strategy.cluster().is_worker()) example::print_test(scores);
    });
  });
}
