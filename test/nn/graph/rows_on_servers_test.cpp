// SPDX-License-Identifier: Apache-2.0
//
// Tables whose gradients are rows under ParameterServerStrategy: the result is that of one replica, and checkpoints,
// faults and devices are as for dense variables.
#include "test/nn/graph/tickets.hpp"
#include "test/support/folder.hpp"

#include <chorale/placement/partitioned.hpp>
#include <chorale/strategy/coordinator.hpp>
#include <chorale/strategy/parameter_server.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace rows_on_servers_test {

using namespace chorale;
using namespace chorale::test::tickets;
using chorale::test::Folder;

namespace {

using Whole = placement::GreedyByBytes;

template <class C = Synchronous, class P = Whole>
auto servers(int workers, int n, C when = {}, P sharding = {}, int devices = 1, ParameterOptions options = {}) {
  return ParameterServerStrategy{Cluster::local(workers, n), when, sharding, Cpu::logical(devices), options};
}
auto one_device() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }

FitOptions epochs(Folder const& folder, int n) {
  return {.epochs = n, .show = Show::nothing, .checkpoints = {.folder = folder.path}};
}

template <class S> auto learner(S strategy) {
  return Trainer{model(), std::move(strategy), RingAllReduce{}, LocalTransport{}, 3};
}

Trained values_of(auto const& trainer) {
  auto all = Trained{};
  for (std::size_t i = 0; i < trainer.variables().size(); ++i)
    all.values.insert(all.values.end(), trainer.variables()[i].value.begin(), trainer.variables()[i].value.end());
  return all;
}

struct Ids : Field<int, 4> {};
struct Mean : Field<float, 3> {};
struct BagOfIds : nn::Graph<Ids> {  // a table, and nothing else
  nn::EmbeddingBag<20, 3, nn::Bag::sum> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

}  // namespace

TEST_CASE("tables on servers that wait for all learn what one replica learns", "[strategy][servers][rows]") {
  auto const clip                  = GENERATE(0.0F, 0.02F);
  auto const [workers, n, devices] = GENERATE(table<int, int, int>({{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {3, 1, 2}}));
  if (clip != 0 && n != 1) return;  // no server knows the norm
  auto const rule = optim::Adam{.learning_rate = 1e-2F, .global_clipnorm = clip};
  auto const one  = trained(model(rule), one_device());
  auto const got  = trained(model(rule), servers(workers, n, Synchronous{}, Whole{}, devices));
  for (auto const hash : got.hashes) CHECK(hash == got.hashes[0]);
  CHECK(difference(got, one) < 1e-5);
}

TEST_CASE("under Reproducible, tables on servers have the bits of one replica", "[strategy][servers][rows]") {
  auto const [workers, n, devices] = GENERATE(table<int, int, int>({{2, 1, 1}, {2, 2, 2}}));
  auto const one                   = trained(model(), one_device(), Reproducible<8>{});
  auto const got = trained(model(), servers(workers, n, Synchronous{}, Whole{}, devices), Reproducible<8>{});
  CHECK(got.values == one.values);
}

TEST_CASE("tables travel over sockets and shared memory with the same bits", "[strategy][servers][rows]") {
  auto const n     = GENERATE(1, 2);
  auto const local = trained(model(), servers(2, n));
  CHECK(trained(model(), servers(2, n), RingAllReduce{}, TcpTransport{}).values == local.values);
  CHECK(trained(model(), servers(2, n), RingAllReduce{}, SharedMemoryTransport{.arena = 1 << 20}).values ==
        local.values);
}

TEST_CASE("tables are cut into whole rows for servers, or refused", "[strategy][servers][rows]") {
  using Pieces   = placement::Partitioned<placement::FixedShards<5>, Whole>;
  using Columns  = placement::Partitioned<placement::FixedShards<2, 1>, Whole>;
  auto const one = trained(model(), one_device());
  CHECK(difference(trained(model(), servers(2, 3, Synchronous{}, Pieces{})), one) < 1e-5);
  CHECK_THROWS_WITH(learner(servers(1, 2, Synchronous{}, Columns{})),
                    Catch::Contains("the gradient of embedding/embeddings is rows, and axis 1"));
}

TEMPLATE_TEST_CASE("tables on servers that do not wait learn too", "[strategy][servers][rows]", Asynchronous,
                   BoundedStaleness<2>) {
  auto const n       = GENERATE(1, 2);
  auto trainer       = learner(servers(2, n, TestType{}));
  auto const history = trainer.fit(batches(), {.epochs = 5, .show = Show::nothing});
  CHECK(history.back().scores.loss() < history.front().scores.loss());
  CHECK(history.back().scores.rows() == 101);
  for (auto const hash : trainer.hashes()) CHECK(hash == trainer.hashes()[0]);  // after an epoch all pull
  for (auto const& report : trainer.live().served()) {
    CHECK(report.ledger.pushes() == 5 * 7 * 2);
    CHECK(report.ledger.applied == 5 * 7 * 2);
  }
}

TEST_CASE("a run with tables on servers goes on with its bits, and under mirrored replicas",
          "[strategy][servers][rows]") {
  auto const folder = Folder{}, copy = Folder{};
  auto whole = learner(servers(2, 2));
  whole.fit(batches(), {.epochs = 4, .show = Show::nothing});
  learner(servers(2, 2)).fit(batches(), epochs(folder, 2));
  std::filesystem::copy(folder.path, copy.path, std::filesystem::copy_options::recursive);
  auto resumed = learner(servers(2, 2));
  CHECK(resumed.fit(batches(), epochs(folder, 4)).size() == 2);
  CHECK(values_of(resumed).values == values_of(whole).values);
  auto mirrored = learner(MirroredStrategy{Cpu::logical(2)});
  CHECK(mirrored.fit(batches(), epochs(copy, 3)).size() == 1);
  auto back = learner(servers(2, 1, Synchronous{}, Whole{}, 2));  // and from there on servers again
  CHECK(back.fit(batches(), epochs(copy, 4)).size() == 1);
  for (auto const hash : back.hashes()) CHECK(hash == back.hashes()[0]);
  CHECK(difference(values_of(back), values_of(whole)) < 1e-5);
}

TEST_CASE("weights of tables are loaded into servers, and saved from what they have", "[strategy][servers][rows]") {
  auto const folder = Folder{};
  auto mirrored     = learner(MirroredStrategy{Cpu::logical(2)});
  auto on_servers   = learner(servers(2, 2, Synchronous{}, Whole{}, 2));
  mirrored.fit(batches(), {.epochs = 1, .show = Show::nothing});
  mirrored.save(folder / "weights");
  on_servers.fit(batches(), {.epochs = 1, .show = Show::nothing});
  on_servers.load(folder / "weights");
  for (auto const hash : on_servers.hashes()) CHECK(hash == mirrored.hashes()[0]);
  on_servers.fit(batches(), {.epochs = 1, .show = Show::nothing});  // the servers go on from there
  for (auto const hash : on_servers.hashes()) CHECK(hash == on_servers.hashes()[0]);
  on_servers.save(folder / "weights");
  mirrored.load(folder / "weights");
  CHECK(mirrored.hashes()[0] == on_servers.hashes()[0]);
}

TEST_CASE("a model of a table alone is served, and a row that is not finite is named", "[strategy][servers][rows]") {
  auto const skips = GENERATE(false, true);
  auto const stops = ParameterOptions{.on_non_finite = skips ? NonFinite::skip : NonFinite::stop};
  auto live        = Live{servers(2, 1, Synchronous{}, Whole{}, 1, stops), RingAllReduce{}, LocalTransport{}};
  auto copies      = live.create(nn::compile<BagOfIds>(loss::Given{}, optim::SGD{.learning_rate = 1}));
  auto const step  = [&](float of_first, float of_second) {
    live.run(
        [&](auto& replica, auto& copy) {
          auto const ids = std::vector<int>{1, 2, 2, 4 + replica.id()};
          auto const d   = std::vector<float>(3, replica.id() == 0 ? of_first : of_second);
          auto result    = replica.value_and_gradient(copy, Rows<Ids, Mean>{ids, d});
          live.update(replica, copy, result.gradients);
        },
        copies);
  };
  auto const table  = copies[0].net.variables()[0].value;
  auto const before = std::vector<float>(table.begin(), table.end());
  auto const hash   = copies[0].hash();
  auto const huge   = 3e38F;  // the loss is finite; row 2 gets it twice
  if (skips) step(huge, huge);
  else CHECK_THROWS_WITH(step(huge, huge), Catch::Contains("embedding_bag/embeddings of step 0 is not finite"));
  for (auto const& copy : copies) CHECK(copy.hash() == hash);
  if (!skips) return;  // the job has ended
  step(1, 3);          // of two rows: means of 0.5 and 1.5
  auto const down = [&](std::size_t row) { return before[row * 3] - copies[1].net.variables()[0].value[row * 3]; };
  CHECK(down(1) == Approx(2));
  CHECK(down(2) == Approx(4));
  CHECK(down(3) == 0);
  CHECK(down(4) == Approx(0.5));
  CHECK(down(5) == Approx(1.5));
  CHECK(copies[1].hash() == copies[0].hash());
}

TEST_CASE("closures of a coordinator train tables on all devices of a worker", "[strategy][servers][rows]") {
  auto const rows  = PerWorkerDataset<decltype(batches())::element>{"rows", [](WorkerShare) { return batches(); }};
  auto const train = Closure{"train", [](auto& here, WorkerStream<decltype(batches())::element>& from, int steps) {
                               auto loss = Sum<float>{};
                               for (auto batch = decltype(batches())::element{}; steps > 0;)
                                 if (from.next(batch))
                                   loss += here.step(batch), --steps;  // else a pass has ended, and the next begins
                               return loss;
                             }};
  auto const one   = trained(model(), one_device());
  auto got         = Trained{};
  auto const what  = servers(2, 2, Asynchronous{}, Whole{}, 2);  // a coordinator, and one worker
  coordinate(
      what, model(), LocalTransport{}, std::tuple{train, rows},
      [&](auto& coordinator, auto& here) {
        auto const from = coordinator.create_per_worker_dataset(rows);
        for (int i = 0; i < 7; ++i) coordinator.schedule(train, from, 2);  // two passes of seven batches
        coordinator.join();
        here.pull();
        for (std::size_t i = 0; i < here.model().net.variables().size(); ++i) {
          auto const v = here.model().net.variables()[i].value;
          got.values.insert(got.values.end(), v.begin(), v.end());
        }
      },
      3);
  CHECK(difference(got, one) < 1e-5);
}

}  // namespace rows_on_servers_test
