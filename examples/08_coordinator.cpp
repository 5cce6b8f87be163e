// SPDX-License-Identifier: Apache-2.0
//
// MNIST with a coordinator: one task decides what is trained and when, workers run what it schedules, servers hold the
// variables. What differs from 05_parameter_server is that workers have no loop of their own: what one of them was doing
// when it was lost, another one does.
//
//   tools/launch -n 3 --ps 1 -- tools/run 08_coordinator --epochs 5     coordinator, two workers, a server, this host
//
// Expect a line for each epoch from the coordinator, then one such as
//   test: loss 0.0301 accuracy 0.9910 (5000 images)
// and from every server how many updates it made, and how old the values were that gradients came from.
#include "support/options.hpp"

#include <chorale/cluster/from_env.hpp>
#include <chorale/strategy/coordinator.hpp>
#include <chorale/transport/tcp.hpp>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

using namespace chorale;

struct LeNet : nn::Sequential<nn::Input<28, 28, 1>,                        // (B, 28, 28,  1)
                              nn::Conv2D<32, 3, nn::HeUniform>, nn::ReLU,  // (B, 26, 26, 32)
                              nn::MaxPool2D<2>,                            // (B, 13, 13, 32)
                              nn::Flatten,                                 // (B, 5408)
                              nn::Dense<64, nn::HeUniform>, nn::ReLU,      // (B, 64)
                              nn::Dense<10>> {};                           // (B, 10) logits

int main(int argc, char** argv) {
  return example::run(argc, argv, {.flags = {"--lr"}}, [](example::Options const& o) {
    auto found = Cluster::from_env();
    if (found.is_local()) found = Cluster::local(3, 1);
    auto const strategy = ParameterServerStrategy{found};
    if (found.is_chief()) std::printf("%s\n", found.text().c_str());

    example::with_digits(o, [&](auto const& rows, auto const& test_rows) {
      auto const test = test_rows.map(data::scale).batch(256);

      auto const shares = PerWorkerDataset<Batch>{
          "shares", [&](WorkerShare s) {
            return rows.shard(static_cast<std::size_t>(s.count), static_cast<std::size_t>(s.index))
                .map(data::scale)
                .cache()
                .shuffle(10'000, o.seed)
                .batch(o.batch);
          }};
      auto const train = Closure{"train", [](auto& here, WorkerStream<Batch>& batches, int steps) {
                                   auto loss = Sum<float>{};
                                   for (auto batch = Batch{}; steps > 0;)
                                     if (batches.next(batch))
                                       loss += here.step(batch), --steps;  // else the next pass begins
                                   return loss;
                                 }};
      auto const evaluate =
          Closure{"evaluate", [&test](auto& here, std::size_t piece, std::size_t pieces) {
                    auto totals = Totals{};
                    auto header = std::array<float, plan::header>{};
                    auto stream = test.shard(pieces, piece).stream(0);
                    for (auto batch = Batch{}; stream.next(batch); totals += Span<float const>{header})
                      here.model().evaluate(batch, header);
                    return totals;
                  }};

      auto const model =
          nn::compile<LeNet>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = o.rate()}, metric::Accuracy{});
      auto const reports = coordinate(
          strategy, model, TcpTransport{}, std::tuple{train, evaluate, shares},
          [&](auto& coordinator, auto&) {
            constexpr int steps = 10, pieces = 8;
            auto const batches  = coordinator.create_per_worker_dataset(shares);
            auto const closures = std::max(1, static_cast<int>(*rows.size()) / o.batch / steps);
            for (int epoch = 0; epoch < o.epochs; ++epoch) {
              auto losses = std::vector<RemoteValue<Sum<float>>>{};
              for (int i = 0; i < closures; ++i) losses.push_back(coordinator.schedule(train, batches, steps));
              coordinator.join();
              auto total = Sum<float>{};
              for (auto const& loss : coordinator.fetch(losses)) total += loss;
              std::printf("Epoch %d/%d: loss %.4f (%lld images)\n", epoch + 1, o.epochs, total.mean(),
                          static_cast<long long>(total.count));
            }
            auto parts = std::vector<RemoteValue<Totals>>{};
            for (int i = 0; i < pieces; ++i) parts.push_back(coordinator.schedule(evaluate, i, pieces));
            auto totals = Totals{};
            for (auto const& part : coordinator.fetch(parts)) totals += part;
            if (coordinator.lost() > 0) std::printf("%d workers were lost\n", coordinator.lost());
            example::print_test(Scores{decltype(model)::metric_names, totals});
          },
          o.seed);
      if (!found.is_local())
        for (auto const& report : reports) std::printf("%s\n", report.text(found.servers()).c_str());
    });
  });
}
