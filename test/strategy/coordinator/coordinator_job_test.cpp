// SPDX-License-Identifier: Apache-2.0
//
// A job that a coordinator runs, workers and servers as threads.
#include "test/support/reference.hpp"

#include <chorale/strategy/coordinator.hpp>

#include <catch2/catch.hpp>

#include <tuple>
#include <vector>

using namespace chorale;

namespace {

using Batch = BasicBatch<float, int>;

/// So many batches of a stream are a step each.
auto const train = Closure{"train", [](auto& here, WorkerStream<Batch>& batches, int steps) {
                             auto loss = Sum<float>{};
                             for (auto batch = Batch{}; steps > 0 && batches.next(batch); --steps)
                               loss += here.step(batch);
                             return loss;
                           }};

auto servers(int workers, int servers, int devices = 1) {
  return ParameterServerStrategy{Cluster::local(1 + workers, servers), Asynchronous{}, placement::GreedyByBytes{},
                                 Cpu::logical(devices)};
}

}  // namespace

TEST_CASE("one worker learns what one replica learns from whole batches, its devices as one",
          "[strategy][coordinator]") {
  auto const [devices, shards] = GENERATE(table<int, int>({{1, 1}, {2, 1}, {2, 2}, {3, 2}}));
  auto const data              = tiny::uneven();
  auto const all               = PerWorkerDataset<Batch>{"all", [&](WorkerShare) { return data; }};
  auto values                  = std::vector<float>{};
  auto const report            = coordinate(
      servers(1, shards, devices), tiny::learner(), LocalTransport{}, std::tuple{train, all},
      [&](auto& coordinator, auto& here) {
        auto const batches = coordinator.create_per_worker_dataset(all);
        auto losses        = std::vector<RemoteValue<Sum<float>>>{};
        for (int i = 0; i < 4; ++i) losses.push_back(coordinator.schedule(train, batches, 5));
        coordinator.join();
        auto rows = std::int64_t{0};
        for (auto const& loss : coordinator.fetch(losses)) rows += loss.count;
        CHECK(rows == 279);
        here.pull();
        auto const body = here.model().net.variables().body();
        values.assign(body.begin(), body.end());
      },
      7);
  CHECK(tiny::difference(values, tiny::reference(data)) < 1e-5);
  REQUIRE(report.size() == static_cast<std::size_t>(shards));
  for (auto const& one : report) {
    CHECK(one.ledger.applied == 20);  // a push for each step, whatever the devices
    CHECK(one.ledger.lost == 0);
  }
}

TEST_CASE("workers under a coordinator learn together, and it sees what they have learned", "[strategy][coordinator]") {
  auto const data = PerWorkerDataset<Batch>{
      "shares", [](WorkerShare share) {
        return tiny::Batches<int>{tiny::batch<int>(64, 64, 1, Seed{static_cast<std::uint64_t>(share.index + 1)}),
                                  std::vector<std::size_t>(8, 8)};
      }};
  auto const report = coordinate(servers(3, 2), tiny::learner(), LocalTransport{}, std::tuple{train, data},
                                 [&](auto& coordinator, auto& here) {
                                   auto const batches = coordinator.create_per_worker_dataset(data);
                                   auto const epoch   = [&] {
                                     auto losses = std::vector<RemoteValue<Sum<float>>>{};
                                     for (int i = 0; i < 60; ++i)
                                       losses.push_back(coordinator.schedule(train, batches, 4));
                                     coordinator.join();
                                     auto total = Sum<float>{};
                                     for (auto const& loss : coordinator.fetch(losses)) total += loss;
                                     return total.mean();
                                   };
                                   auto const first = epoch(), second = epoch(), third = epoch();
                                   CHECK(third < first);
                                   INFO(first << " " << second << " " << third);
                                   auto const before = here.model().hash();
                                   here.pull();
                                   CHECK(here.model().hash() != before);
                                   CHECK(here.index() == -1);
                                   CHECK(here.count() == 3);
                                 });
  for (auto const& one : report) CHECK(one.ledger.applied > 3 * 60 * 2);
}

TEST_CASE("closures begin with the values that the coordinator assigned", "[strategy][coordinator]") {
  auto const first = Closure{"first", [](auto& here) { return here.model().net.variables().body()[0]; }};
  coordinate(servers(2, 1), tiny::learner(), LocalTransport{}, std::tuple{first}, [&](auto& coordinator, auto& here) {
    for (auto const value : {3.0F, 4.0F}) {
      here.model().net.variables().body()[0] = value;
      here.assign();
      for (int i = 0; i < 4; ++i) CHECK(coordinator.fetch(coordinator.schedule(first)) == value);
    }
  });
}

TEST_CASE("what the program throws comes out of coordinate, and a job without workers is refused",
          "[strategy][coordinator]") {
  auto const run = [&](auto strategy) {
    auto const nothing = Closure{"nothing", [](auto&) {}};
    coordinate(strategy, tiny::learner(), LocalTransport{}, std::tuple{nothing}, [&](auto& coordinator, auto&) {
      coordinator.schedule(nothing);
      throw Error{"the program has changed its mind"};
    });
  };
  CHECK_THROWS_WITH(run(servers(2, 2)), Catch::Contains("changed its mind"));
  CHECK_THROWS_WITH(run(servers(0, 1)), Catch::Contains("needs workers beside it, but local names 1 task that"));
}
