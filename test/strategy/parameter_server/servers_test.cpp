// SPDX-License-Identifier: Apache-2.0
//
// A trainer under ParameterServerStrategy, workers and servers as threads.
#include "test/support/folder.hpp"
#include "test/support/reference.hpp"

#include <chorale/placement/partitioned.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>
#include <chorale/transport/shared_memory.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using tiny::quietly;

TEMPLATE_TEST_CASE("workers of servers that wait for all learn what one replica learns", "[strategy][servers]",
                   Synchronous, BoundedStaleness<0>, BackupWorkers<0>) {
  auto const [workers, servers] = GENERATE(table<int, int>({{1, 1}, {2, 1}, {2, 2}, {3, 2}}));
  auto const data               = tiny::uneven();
  auto trainer   = tiny::learner_under(ParameterServerStrategy{Cluster::local(workers, servers), TestType{}});
  auto const fit = trainer.fit(data, quietly)[0].scores;
  CHECK(fit.rows() == 279);
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);
  CHECK(tiny::difference(tiny::values_of(trainer), tiny::reference(data)) < 1e-5);
  auto one = tiny::learner_under(OneDeviceStrategy{Cpu::logical(1)[0]});
  one.fit(data, quietly);
  CHECK(trainer.evaluate(data).loss() == Approx(one.evaluate(data).loss()).epsilon(1e-5));
  CHECK(trainer.predict(data).rows() == 279);
}

TEMPLATE_TEST_CASE("under Reproducible, workers and servers have the bits of one replica",
                   "[strategy][servers][reproducible]", Synchronous, BoundedStaleness<0>) {
  auto const [workers, servers, devices] = GENERATE(table<int, int, int>({{1, 1, 1}, {2, 1, 1}, {4, 2, 1}, {2, 2, 2}}));
  auto const data                        = tiny::uneven();
  auto const adam =
      nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = 0.01F}, metric::Accuracy{});
  auto const bits = [&](auto const& model, auto strategy) {
    auto trainer = Trainer{model, std::move(strategy), Reproducible<8>{}, LocalTransport{}, 7};
    trainer.fit(data, quietly);
    return tiny::values_of(trainer);
  };
  auto const under = [workers = workers, servers = servers, devices = devices] {
    return ParameterServerStrategy{Cluster::local(workers, servers), TestType{}, placement::GreedyByBytes{},
                                   Cpu::logical(devices)};
  };
  auto const alone = [] { return OneDeviceStrategy{Cpu::logical(1)[0]}; };
  CHECK(bits(tiny::learner(), under()) == bits(tiny::learner(), alone()));
  CHECK(bits(adam, under()) == bits(adam, alone()));
}

TEST_CASE("a tree that the workers of servers cannot share evenly is refused", "[strategy][servers][reproducible]") {
  CHECK_THROWS_WITH(
      tiny::learner_under(ParameterServerStrategy{Cluster::local(3, 1), Synchronous{}}, Reproducible<8>{}),
      Catch::Contains("8 logical shards, which 3 replicas"));
  auto const skips = ParameterServerStrategy{Cluster::local(2, 1),
                                             Synchronous{},
                                             placement::GreedyByBytes{},
                                             Cpu::logical(1),
                                             {.on_non_finite = NonFinite::skip}};
  CHECK_THROWS_WITH(tiny::learner_under(skips, Reproducible<8>{}), Catch::Contains("other bits under Reproducible"));
}

TEST_CASE("servers read gradients in the shared memory of workers, and learn the same", "[strategy][servers][shm]") {
  auto const data  = tiny::uneven();
  auto const train = [&](auto const& transport, std::uint64_t& bytes) {
    auto const under = ParameterServerStrategy{Cluster::local(2, 2), Synchronous{}};
    auto trainer     = tiny::learner_under(under, DirectAllReduce{}, transport);
    trainer.fit(data, quietly);
    for (auto const& report : trainer.live().served()) bytes += report.ledger.bytes_in;
    return tiny::values_of(trainer);
  };
  auto sent = std::uint64_t{0}, read = std::uint64_t{0};
  CHECK(train(LocalTransport{}, sent) == train(SharedMemoryTransport{.arena = 1 << 20}, read));
  CHECK(read < sent / 2);
}

TEST_CASE("variables in pieces on servers are the same variables", "[strategy][servers]") {
  using Pieces    = placement::Partitioned<placement::FixedShards<2>, placement::GreedyByBytes>;
  auto const data = tiny::uneven();
  auto trainer    = tiny::learner_under(ParameterServerStrategy{Cluster::local(2, 3), Synchronous{}, Pieces{}});
  trainer.fit(data, quietly);
  CHECK(tiny::difference(tiny::values_of(trainer), tiny::reference(data)) < 1e-5);
  CHECK_THROWS_WITH(tiny::learner_under(ParameterServerStrategy{Cluster::local(1, 7)}),
                    Catch::Contains("has none of the 6 variables"));
}

TEMPLATE_TEST_CASE("workers of servers that do not wait learn too", "[strategy][servers]", Asynchronous,
                   BoundedStaleness<3>, BackupWorkers<1>) {
  auto const data    = tiny::uneven();
  auto trainer       = tiny::learner_under(ParameterServerStrategy{Cluster::local(3, 2), TestType{}});
  auto const history = trainer.fit(data, {.epochs = 5, .show = Show::nothing});
  CHECK(history.back().scores.loss() < history.front().scores.loss());
  CHECK(history.back().scores.rows() == 279);
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);  // after an epoch all pull
  auto const reports = trainer.live().served();
  REQUIRE(reports.size() == 2);
  for (auto const& report : reports) {
    CHECK(report.ledger.pushes() == 5 * 20 * 3);
    CHECK(report.ledger.lost == 0);
    CHECK(report.text(2).find("staleness 0:") != std::string::npos);
  }
}

TEST_CASE("weights are loaded into servers, and saved from what they have", "[strategy][servers]") {
  auto const folder = chorale::test::Folder{};
  auto const file   = folder / "weights";
  auto const data   = tiny::uneven();
  auto mirrored     = tiny::learner_under(MirroredStrategy{Cpu::logical(2)});
  mirrored.fit(data, quietly);
  auto const names = WeightMap{{"fc.{i}.weight", "dense{_i}/kernel", weights::transposed()},
                               {"fc.{i}.bias", "dense{_i}/bias"},
                               {"conv.{i}.weight", "conv2d{_i}/kernel", weights::oihw()},
                               {"conv.{i}.bias", "conv2d{_i}/bias"}};
  mirrored.save(file, names);
  auto servers = tiny::learner_under(ParameterServerStrategy{Cluster::local(2, 2), Synchronous{}});
  servers.fit(data, quietly);
  servers.load(file, names);
  for (auto const hash : servers.hashes()) CHECK(hash == mirrored.hashes()[0]);
  mirrored.fit(data, quietly);
  servers.fit(data, quietly);  // the servers go on from there
  CHECK(tiny::difference(tiny::values_of(servers), tiny::values_of(mirrored)) < 1e-5);
  servers.save(file);
  mirrored.load(file);
  CHECK(mirrored.hashes()[0] == servers.hashes()[0]);
  CHECK_THROWS_AS(servers.load("/nowhere/at/all"), BadFile);
}

TEST_CASE("a lost worker is only missed, also where the transport is wrapped", "[strategy][servers]") {
  auto counting = Counting<Counting<LocalTransport>>{};
  ParameterServerStrategy<>::prepare(counting);
  CHECK(counting.transport.transport.failures == FailureScope::peer);
}

TEST_CASE("a cluster without servers, and one with tasks that do nothing, are refused", "[strategy][servers]") {
  CHECK_THROWS_WITH(ParameterServerStrategy{Cluster::local(2)}, Catch::Contains("names 2 workers and no ps task"));
}
