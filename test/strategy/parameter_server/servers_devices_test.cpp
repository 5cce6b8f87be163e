// SPDX-License-Identifier: Apache-2.0
//
// A trainer under ParameterServerStrategy whose workers have several devices each.
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"
#include "test/support/reference.hpp"

#include <chorale/strategy/mirrored.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <vector>

using namespace chorale;
using tiny::quietly;

namespace {

template <class C> auto trainer(Cluster const& cluster, C consistency, int devices) {
  return tiny::learner_under(
      ParameterServerStrategy{cluster, consistency, placement::GreedyByBytes{}, Cpu::logical(devices)});
}

}  // namespace

TEST_CASE("workers with several devices learn what one replica learns from whole batches", "[strategy][servers]") {
  auto const [workers, servers, devices] =
      GENERATE(table<int, int, int>({{1, 1, 2}, {2, 1, 2}, {2, 2, 2}, {1, 2, 3}, {3, 2, 2}}));
  auto const data = tiny::uneven();
  auto several    = trainer(Cluster::local(workers, servers), Synchronous{}, devices);
  REQUIRE(several.num_replicas() == workers * devices);
  auto const fit = several.fit(data, quietly)[0].scores;
  CHECK(fit.rows() == 279);
  for (auto const hash : several.hashes()) CHECK(hash == several.hashes()[0]);
  CHECK(tiny::difference(tiny::values_of(several), tiny::reference(data)) < 1e-5);
  CHECK(several.evaluate(data).rows() == 279);
  CHECK(several.predict(data).rows() == 279);
  for (auto const& report : several.live().served())
    CHECK(report.ledger.pushes() == static_cast<std::size_t>(20 * workers));  // one of each worker in a step
}

TEMPLATE_TEST_CASE("their replicas are one worker to every consistency", "[strategy][servers]", Asynchronous,
                   BoundedStaleness<2>, BackupWorkers<1>) {
  auto const data    = tiny::uneven();
  auto several       = trainer(Cluster::local(2, 2), TestType{}, 2);
  auto const history = several.fit(data, {.epochs = 4, .show = Show::nothing});
  CHECK(history.back().scores.loss() < history.front().scores.loss());
  CHECK(history.back().scores.rows() == 279);
  for (auto const hash : several.hashes()) CHECK(hash == several.hashes()[0]);
  for (auto const& report : several.live().served()) {
    CHECK(report.ledger.pushes() == 4 * 20 * 2);
    CHECK(report.ledger.lost == 0);
  }
}

namespace {

/// More than goes to the servers in one letter.
struct Wide {
  std::array<double, 21> x{};

  Wide& operator+=(Wide const& other) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += other.x[i];
    return *this;
  }
};

}  // namespace

TEST_CASE("reduce and gather bring together what all devices of all workers have", "[strategy][servers]") {
  auto const [workers, devices] = GENERATE(table<int, int>({{1, 1}, {3, 1}, {2, 2}, {3, 3}}));
  auto live = Live{ParameterServerStrategy{Cluster::local(workers, 2), Asynchronous{}, placement::GreedyByBytes{},
                                           Cpu::logical(devices)},
                   RingAllReduce{}, LocalTransport{}};
  auto const copies = live.create(tiny::learner(), 7);
  auto const n      = workers * devices;
  auto ranks        = std::vector<Rank>{};
  for (Rank rank = 0; rank < n; ++rank) ranks.push_back(rank);
  CHECK(live.gather(live.run([](auto& replica) { return replica.id(); })) == ranks);
  CHECK(live.run([](auto& replica) { return replica.num_replicas(); })[0] == n);
  for (int round = 1; round <= 70; ++round) {  // a server keeps the last 64
    auto const sum = live.reduce(live.run([&](auto& replica) {
      auto wide = Wide{};
      for (std::size_t i = 0; i < wide.x.size(); ++i) wide.x[i] = round + 100.0 * static_cast<double>(i) + replica.id();
      return wide;
    }));
    for (std::size_t i = 0; i < sum.x.size(); ++i)
      REQUIRE(sum.x[i] == n * (round + 100.0 * static_cast<double>(i)) + n * (n - 1) / 2);
  }
}

TEST_CASE("servers that have no variables yet are not called", "[strategy][servers]") {
  auto live = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  CHECK_THROWS_WITH(live.reduce(live.run([](auto&) { return Sum<float>{1, 1}; })),
                    Catch::Contains("Live::create comes before"));
}

TEST_CASE("nobody leaves a barrier of workers before all replicas have come", "[strategy][servers]") {
  auto const [workers, devices] = GENERATE(table<int, int>({{1, 2}, {3, 1}, {2, 2}}));
  auto live = Live{ParameterServerStrategy{Cluster::local(workers, 1), Asynchronous{}, placement::GreedyByBytes{},
                                           Cpu::logical(devices)},
                   RingAllReduce{}, LocalTransport{}};
  auto const copies = live.create(tiny::learner(), 7);
  auto came         = std::atomic<int>{0};
  auto const seen   = live.run([&](auto& replica) {
    auto least = 0;
    for (int round = 0; round < 20; ++round) {
      ++came;
      replica.barrier();
      if (came < (round + 1) * replica.num_replicas()) ++least;
      replica.barrier();
    }
    return least;
  });
  for (auto const early : seen) CHECK(early == 0);
}

TEST_CASE("weights that are loaded come to all devices", "[strategy][servers]") {
  auto const folder = chorale::test::Folder{};
  auto const file   = folder / "weights";
  auto from         = trainer(Cluster::local(1, 1), Synchronous{}, 1);
  from.fit(tiny::uneven(), quietly);
  from.save(file);
  auto to = trainer(Cluster::local(2, 2), Synchronous{}, 2);
  to.load(file);
  for (auto const hash : to.hashes()) CHECK(hash == from.hashes()[0]);
}

TEST_CASE("a bad number on any device stops its worker, and the others of it with it", "[strategy][servers]") {
  auto const row        = GENERATE(0U, 15U);  // of the first device, of the last
  auto data             = tiny::Batches<int>{tiny::batch<int>(16, 64, 1), {16}};
  data.rows.x[row * 64] = std::numeric_limits<float>::quiet_NaN();
  auto several          = trainer(Cluster::local(1, 1), Asynchronous{}, 2);
  CHECK_THROWS_AS(several.fit(data, quietly), NumericFault);
}

TEST_CASE("a list of no devices is refused", "[strategy][servers]") {
  CHECK_THROWS_WITH(
      (ParameterServerStrategy{Cluster::local(1, 1), Asynchronous{}, placement::GreedyByBytes{}, std::vector<Cpu>{}}),
      Catch::Contains("a list of 0 devices"));
}

TEST_CASE("processes whose workers have two devices learn what one replica learns", "[strategy][servers][processes]") {
  auto const at  = free_loopback_addresses(4);
  auto processes = chorale::test::Processes{
      4, [&](int me, chorale::test::Voice voice) {
        auto const cluster = Cluster::at({.workers = {at[0], at[1]},
                                          .servers = {at[2], at[3]},
                                          .me      = {me < 2 ? Role::worker : Role::ps, me % 2},
                                          .job     = "test-" + at[0]});
        auto const data    = tiny::uneven();
        auto one           = tiny::learner_under(
            ParameterServerStrategy{cluster, Synchronous{}, placement::GreedyByBytes{}, Cpu::logical(2)},
            RingAllReduce{}, TcpTransport{.log = [](std::string const&) {}});
        one.fit(data, quietly);
        auto const rows = one.predict(data);
        if (me >= 2) return;
        voice.say(tiny::difference(tiny::values_of(one), tiny::reference(data)) < 1e-5 ? "equal" : "other");
        auto alone =
            tiny::learner_under(MirroredStrategy{Cpu::logical(2)});  // the same shares: kernels round by their rows
        alone.set_variables(one.variables().values);
        voice.say(rows.values == alone.predict(data).values ? "equal bits" : "other bits");
      }};
  for (int worker : {0, 1}) {
    CHECK(processes.line(worker) == "equal");
    CHECK(processes.line(worker) == "equal bits");
  }
  for (int i = 0; i < 4; ++i) CHECK(processes.exit(i) == 0);
}
