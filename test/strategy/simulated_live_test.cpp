// SPDX-License-Identifier: Apache-2.0
//
// Trainers over virtual ranks: the same bits as over threads, for more replicas than there could be threads.
#include "test/support/reference.hpp"

#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/gossip.hpp>
#include <chorale/strategy/local_sgd.hpp>
#include <chorale/strategy/multi_worker_mirrored.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/simulated.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;
using namespace std::chrono_literals;
using tiny::quietly;

namespace {

SimulatedTransport virtual_ranks() { return {.compute = 1ms}; }

/// A trainer over virtual ranks and one over threads learn the same data: equal bits.
template <class S> void expect_equal_bits(S strategy) {
  auto const data = tiny::uneven();
  auto simulated  = tiny::learner_under(strategy, RingAllReduce{}, virtual_ranks());
  auto threads    = tiny::learner_under(strategy);
  CHECK(simulated.fit(data, quietly)[0].scores.loss() == threads.fit(data, quietly)[0].scores.loss());
  CHECK(simulated.hashes() == threads.hashes());
  CHECK(simulated.evaluate(data).loss() == threads.evaluate(data).loss());
  CHECK(simulated.predict(data).values == threads.predict(data).values);
}

}  // namespace

TEST_CASE("synchronous strategies learn the same bits over virtual ranks as over threads", "[strategy][simulated]") {
  auto const replicas = GENERATE(2, 5);
  expect_equal_bits(MirroredStrategy{Cpu::logical(replicas)});
  expect_equal_bits(CentralStorageStrategy{Cpu::logical(replicas)});
  expect_equal_bits(MultiWorkerMirroredStrategy{Cluster::local(replicas), Cpu::logical(2)});
}

TEST_CASE("replicas that learn apart do so over virtual ranks", "[strategy][simulated]") {
  expect_equal_bits(LocalSgd<4, MirroredStrategy<>>{MirroredStrategy{Cpu::logical(3)}});
  expect_equal_bits(Gossip{MirroredStrategy{Cpu::logical(4)}});
}

TEST_CASE("workers and servers are virtual ranks, too", "[strategy][simulated][servers]") {
  auto const [workers, servers] = GENERATE(table<int, int>({{1, 1}, {3, 2}, {16, 2}}));
  auto const data               = tiny::uneven();
  auto trainer = tiny::learner_under(ParameterServerStrategy{Cluster::local(workers, servers), Synchronous{}},
                                     RingAllReduce{}, virtual_ranks());
  CHECK(trainer.fit(data, quietly)[0].scores.rows() == 279);
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  CHECK(tiny::difference(tiny::values_of(trainer), tiny::reference(data)) < 1e-5);
  CHECK(trainer.evaluate(data).rows() == 279);
}

TEST_CASE("a loop of one's own has virtual workers and servers, too", "[strategy][simulated][servers]") {
  auto const [workers, devices] = GENERATE(table<int, int>({{1, 1}, {3, 1}, {2, 2}}));
  auto const data               = tiny::uneven();
  auto live   = Live{ParameterServerStrategy{Cluster::local(workers, 2), Synchronous{}, placement::GreedyByBytes{},
                                           Cpu::logical(devices)},
                   RingAllReduce{}, virtual_ranks()};
  auto copies = live.create(tiny::learner(), 7);
  auto loss   = Sum<float>{};
  for (auto& batch : live.distribute(data))
    loss += live.reduce(live.run(
        [&](auto& replica, auto& copy, auto& share) {
          auto [sum, gradients] = replica.value_and_gradient(copy, share);
          live.update(replica, copy, gradients);
          return sum;
        },
        copies, batch));
  live.finish(copies);
  CHECK(loss.count == 279);
  for (auto const& copy : copies) CHECK(copy.hash() == copies[0].hash());
  auto const values = copies[0].net.variables().body();
  CHECK(tiny::difference({values.begin(), values.end()}, tiny::reference(data)) < 1e-5);
  auto ranks = std::vector<Rank>{};
  for (Rank rank = 0; rank < workers * devices; ++rank) ranks.push_back(rank);
  CHECK(live.gather(live.run([](auto& replica) { return replica.id(); })) == ranks);
}

TEST_CASE("the devices of a worker of servers are virtual ranks, too", "[strategy][simulated][servers]") {
  auto const data = tiny::uneven();
  auto trainer    = tiny::learner_under(
      ParameterServerStrategy{Cluster::local(2, 2), Synchronous{}, placement::GreedyByBytes{}, Cpu::logical(3)},
      RingAllReduce{}, virtual_ranks());
  CHECK(trainer.fit(data, quietly)[0].scores.rows() == 279);
  CHECK(tiny::difference(tiny::values_of(trainer), tiny::reference(data)) < 1e-5);
}

TEST_CASE("workers that wait for nobody learn over virtual ranks, the same bits each time",
          "[strategy][simulated][servers]") {
  auto const fit = [] {
    auto trainer = tiny::learner_under(ParameterServerStrategy{Cluster::local(4, 2), BoundedStaleness<2>{}},
                                       RingAllReduce{}, virtual_ranks());
    CHECK(trainer.fit(tiny::uneven(), quietly)[0].scores.rows() == 279);
    return trainer.hashes();
  };
  CHECK(fit() == fit());
}

TEST_CASE("256 replicas learn what one replica learns, in the time of their clocks", "[strategy][simulated]") {
  auto const data = tiny::Batches<int>{tiny::batch<int>(3 * 512, 64, 1), {512, 512, 512}};
  auto live       = Live{MirroredStrategy{Cpu::logical(256)}, HalvingDoublingAllReduce{},
                   Counting<SimulatedTransport>{virtual_ranks()}};
  auto copies     = live.create(tiny::learner(), 7);
  for (auto& shares : live.distribute(data))
    live.run(
        [&](auto& replica, auto& copy, auto& batch) {
          replica.begin_step(0);
          auto gradients = replica.value_and_gradient_ahead(copy, batch).gradients;
          live.strategy().update(replica, copy, gradients);
        },
        copies, shares);
  for (auto const& copy : copies) REQUIRE(copy.hash() == copies[0].hash());
  auto const values = copies[0].net.variables().body();
  CHECK(tiny::difference({values.begin(), values.end()}, tiny::reference(data)) < 1e-5);
  auto const took = live.local_replica(0).now();
  CHECK(took > 3ms);  // three steps, and their messages
  CHECK(took < 4ms);
  auto const sent = live.local_replica(0).sent();
  CHECK(sent.messages > 0);
  CHECK(sent.messages % (3 * 2 * 8) == 0);  // 8 halvings and 8 doublings in each bucket
  CHECK(live.local_replica(255).sent().messages == sent.messages);
}

TEST_CASE("AutoAllReduce measures virtual time: it chooses the same in each run", "[strategy][simulated]") {
  auto const fit = [] {
    auto trainer = tiny::learner_under(MirroredStrategy{Cpu::logical(3)}, AutoAllReduce{}, virtual_ranks());
    trainer.fit(tiny::uneven(), quietly);
    return std::pair{trainer.hashes(), trainer.live().local_replica(0).now()};
  };
  CHECK(fit() == fit());
}

TEST_CASE("what a virtual replica throws reaches the caller, and the others go on", "[strategy][simulated]") {
  auto live    = Live{MirroredStrategy{Cpu::logical(3)}, RingAllReduce{}, virtual_ranks()};
  auto numbers = PerReplica<int>(3);
  for (int round = 0; round < 2; ++round) {
    CHECK_THROWS_WITH(live.run(
                          [](auto& replica, int&) {
                            if (replica.id() == 1) throw std::runtime_error{"the step of replica 1 went wrong"};
                            replica.barrier();
                          },
                          numbers),
                      "the step of replica 1 went wrong");
    live.run(
        [](auto& replica, int& number) {
          replica.barrier();
          ++number;
        },
        numbers);
  }
  for (auto const number : numbers) CHECK(number == 2);
}
