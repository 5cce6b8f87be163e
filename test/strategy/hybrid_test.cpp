// SPDX-License-Identifier: Apache-2.0
//
// HybridStrategy: shards within a node and copies between nodes, against one replica with the whole batch.
#include "test/strategy/units.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/folder.hpp"
#include "test/support/processes.hpp"

#include <chorale/reduce/operation_traffic.hpp>
#include <chorale/strategy/hybrid.hpp>
#include <chorale/strategy/step_operations.hpp>
#include <chorale/trainer/retarget.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/layered.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace hybrid_test {

using namespace chorale;
using units_test::odd_net;
using units_test::OddBatches;

auto const clipped = optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F};

auto alone() {
  return Trainer{odd_net(clipped), OneDeviceStrategy{Cpu::logical(1)[0]}, Reproducible<8>{}, LocalTransport{}, 7};
}
template <class S, class R = Reproducible<8>, class T = LocalTransport>
auto under(S strategy, R reduce = {}, T transport = {}) {
  return Trainer{odd_net(clipped), std::move(strategy), std::move(reduce), std::move(transport), 7};
}
template <Zero zero = Zero::three, int within = 2> auto nodes(int ranks) {
  return HybridStrategy<zero, within>{Cpu::logical(ranks)};
}

/// The bits of one replica after 20 steps.
std::vector<float> const& wanted() {
  static auto const values = [] {
    auto one = alone();
    one.fit(OddBatches{}, tiny::quietly);
    return tiny::values_of(one);
  }();
  return values;
}
std::vector<float> learned(auto trainer) {
  trainer.fit(OddBatches{}, tiny::quietly);
  return tiny::values_of(trainer);
}

}  // namespace hybrid_test

using namespace hybrid_test;

TEMPLATE_TEST_CASE_SIG("shards within nodes learn the bits of one replica, on any number of nodes",
                       "[strategy][hybrid]", ((Zero zero), zero), Zero::two, Zero::three) {
  for (int const ranks : {2, 4, 6}) {
    CAPTURE(ranks);
    auto trainer = under(nodes<zero>(ranks));
    trainer.fit(OddBatches{}, tiny::quietly);
    CHECK(tiny::values_of(trainer) == wanted());
    auto const hashes = trainer.hashes();
    for (std::size_t i = 2; i < hashes.size(); ++i) CHECK(hashes[i] == hashes[i - 2]);  // on the next node
    CHECK(sharded_test::apart(learned(under(nodes<zero>(ranks), RingAllReduce{})), wanted()) < 1e-5);
  }
}

TEST_CASE("shards within nodes evaluate and predict what one replica does", "[strategy][hybrid]") {
  auto one = alone(), rest = alone();
  auto many = under(nodes(4));
  CHECK(many.evaluate(OddBatches{}).loss() == Approx(one.evaluate(OddBatches{}).loss()).epsilon(1e-6));
  CHECK(sharded_test::apart(many.predict(OddBatches{}).values, one.predict(OddBatches{}).values) < 1e-5);
  auto const folder = chorale::test::Folder{};
  one.fit(OddBatches{}, tiny::quietly);
  one.save(folder / "weights");
  many.load(folder / "weights");
  CHECK(tiny::values_of(many) == wanted());
  many.save(folder / "again");
  rest.load(folder / "again");
  CHECK(tiny::values_of(rest) == wanted());
}

TEST_CASE("a run goes on with shards within nodes, by retarget and from a checkpoint", "[strategy][hybrid]") {
  auto const epoch = [](int i) { return FitOptions{.epochs = i + 1, .initial_epoch = i, .show = Show::nothing}; };
  auto one         = alone();
  one.fit(OddBatches{}, {.epochs = 3, .show = Show::nothing});
  auto first = under(ShardedStrategy<Zero::three>{Cpu::logical(3)});
  first.fit(OddBatches{}, epoch(0));
  auto moved  = Moved{};
  auto second = retarget(std::move(first), nodes(4), Reproducible<8>{}, LocalTransport{}, &moved);
  second.fit(OddBatches{}, epoch(1));
  auto third = retarget(std::move(second), nodes(2), Reproducible<8>{}, LocalTransport{}, &moved);
  CHECK(moved.bytes == 0);  // the first node has both shards
  third.fit(OddBatches{}, epoch(2));
  CHECK(tiny::values_of(third) == tiny::values_of(one));

  auto const folder = chorale::test::Folder{};
  auto const until  = [&](auto trainer, int epochs) {
    trainer.fit(OddBatches{}, {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}});
    return tiny::values_of(trainer);
  };
  until(alone(), 1);
  until(under(nodes(4)), 2);
  CHECK(until(alone(), 3) == tiny::values_of(one));
}

/// Bytes that each replica has sent in the last of 20 steps, and how often it has allocated in it.
struct LastStep {
  std::vector<std::size_t> sent{}, held{};
  std::vector<int> allocated{};

  template <class S> static LastStep of(S strategy) {
    auto live       = Live{strategy, RingAllReduce{}, Counting<LocalTransport>{}};
    auto copies     = live.create(odd_net(clipped), 7);
    auto sent       = PerReplica<std::size_t>(copies.size());
    auto allocated  = PerReplica<int>(copies.size());
    auto const data = OddBatches{};
    for (auto& share : live.distribute(data))
      live.run(
          [&](auto& replica, auto& copy, auto& batch, std::size_t& bytes, int& made) {
            auto const begin = replica.sent().bytes;
            auto const first = test::allocations;
            auto result      = replica.value_and_gradient_ahead(copy, batch);
            live.update(replica, copy, result.gradients);
            made  = test::allocations - first;
            bytes = replica.sent().bytes - begin;
          },
          copies, share, sent, allocated);
    auto last = LastStep{};
    last.sent.assign(sent.begin(), sent.end());
    last.allocated.assign(allocated.begin(), allocated.end());
    for (auto& copy : copies) last.held.push_back(copy.units().held());
    return last;
  }
};

TEST_CASE("only sums of a shard's gradients leave a node", "[strategy][hybrid]") {
  auto const within  = step_operations<ShardedStrategy<Zero::three>>(odd_net(clipped), RingAllReduce{}, 2);
  auto const sharded = LastStep::of(ShardedStrategy<Zero::three>{Cpu::logical(2)});  // a node alone
  for (auto const ranks : {2, 4, 6}) {
    auto const last = LastStep::of(nodes(ranks));
    auto const ends = plan::header + plan::trailer;
    for (int rank = 0; rank < ranks; ++rank) {
      auto const i = static_cast<std::size_t>(rank), inside = i % 2;
      CAPTURE(rank, ranks);
      CHECK(last.held[i] == sharded.held[inside]);
      CHECK(sharded.sent[inside] == within.sent(rank % 2)->bytes);
      CHECK(last.sent[i] ==
            sharded.sent[inside] - traffic<RecursiveDoublingAllReduce>(rank % 2, 2, ends, sizeof(float)).bytes +
                traffic<RecursiveDoublingAllReduce>(rank, ranks, ends, sizeof(float)).bytes +
                (ranks == 2 ? 0 : traffic<RingAllReduce>(rank / 2, ranks / 2, last.held[i], sizeof(float)).bytes));
      CHECK(last.allocated[i] == sharded.allocated[inside]);  // of kernels
    }
  }
}

TEST_CASE("nodes are threads of a process, or processes over TCP", "[strategy][hybrid][tcp][processes]") {
  auto const addresses = free_loopback_addresses(2);
  auto processes       = chorale::test::Processes{
      2, [&](int me, chorale::test::Voice voice) {
        auto const cluster =
            Cluster::at({.workers = addresses, .me = {Role::worker, me}, .job = "nodes-" + addresses[0]});
        voice.say(std::to_string(hash_of(Span<float const>{learned(
            under(HybridStrategy<Zero::three, 2>{cluster, Cpu::logical(2)}, Reproducible<8>{}, TcpTransport{}))})));
      }};
  for (int i = 0; i < 2; ++i) {
    CHECK(processes.line(i) == std::to_string(hash_of(Span<float const>{wanted()})));
    CHECK(processes.exit(i) == 0);
  }
  auto const two_each = HybridStrategy<Zero::three, 2>{Cluster::local(2), Cpu::logical(2)};
  CHECK(sharded_test::apart(
            learned(under(two_each, RingAllReduce{}, Layered<LocalTransport, LocalTransport>{.ranks_per_node = 2})),
            wanted()) < 1e-5);
}

TEST_CASE("ranks that make no whole nodes, or nodes of other sizes, are refused", "[strategy][hybrid]") {
  CHECK_THROWS_WITH(nodes(3), Catch::Contains("shards are kept within nodes of 2 ranks, but there are 3 ranks") &&
                                  Catch::Contains("a multiple of 2 ranks"));
  auto const lines = nodes(4).group().meeting().lines;
  CHECK(std::ranges::count(lines, "shards within nodes of 2 ranks") == 1);
}
