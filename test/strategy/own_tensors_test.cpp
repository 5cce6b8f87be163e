// SPDX-License-Identifier: Apache-2.0
//
// Tensors and variables of a program's own, combined over replicas in a loop of its own and beside a Trainer.
#include "test/support/reference.hpp"

#include <chorale/cluster/cluster.hpp>
#include <chorale/nn/pipeline/schedules.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/hybrid.hpp>
#include <chorale/strategy/mesh.hpp>
#include <chorale/strategy/pipeline.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/tensor/synced_variable.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

// A device, a replica, a task, a mirrored variable and a rank are types of their own: none is taken for another one.
using OneReplica                                             = Replica<RingAllReduce, LocalEndpoint>;
template <class A, class... B> inline constexpr bool becomes = (std::is_convertible_v<A, B> || ...);
static_assert(!becomes<Cpu, OneReplica, TaskId, Variable, Rank>);
static_assert(!becomes<OneReplica, Cpu, TaskId, Variable, Rank>);
static_assert(!becomes<TaskId, Cpu, OneReplica, Variable, Rank>);
static_assert(!becomes<Variable, Cpu, OneReplica, TaskId, Rank, float>);
static_assert(!becomes<Rank, Cpu, OneReplica, TaskId, Variable>);

/// Callback that keeps a variable for each replica: the largest loss of an epoch, and how many rows were seen.
struct Watcher {
  using Rows = SyncedVariable<std::int64_t, Sync::on_read, Aggregation::sum>;
  using Rate = SyncedVariable<float, Sync::on_write, Aggregation::mean>;

  std::vector<std::int64_t> rows{};
  std::vector<float> rates{};
  std::optional<PerReplica<Rows>> seen{};
  std::optional<PerReplica<Rate>> rate{};

  void on_epoch_end(auto& trainer, int epoch, Epoch& done) {
    auto& live = trainer.live();
    if (!seen) {
      auto all = std::vector<Rows>{};
      auto one = std::vector<Rate>{};
      for (Rank i = 0; i < live.num_replicas(); ++i) all.emplace_back(i), one.emplace_back(i, 1.0F);
      seen.emplace(std::move(all));
      rate.emplace(std::move(one));
    }
    auto const results = live.run(
        [&](auto& replica, Rows& mine, Rate& of_all) {
          mine.local().add(static_cast<std::int64_t>(done.scores.rows()) *
                           (replica.id() + 1));  // another on each replica
          of_all.write({static_cast<float>(epoch + replica.id()), 1}, replica.sums());
          return Sum<float>{of_all.local().read(), mine.read(replica.sums())};
        },
        *seen, *rate);
    for (auto const& one : results) {
      rows.push_back(one.count);
      rates.push_back(one.value);
    }
  }
};

}  // namespace

TEST_CASE("variables with a synchronization and an aggregation live beside a Trainer", "[strategy][synced]") {
  auto const data = tiny::uneven();
  auto trainer    = tiny::learner_under(MirroredStrategy{Cpu::logical(3)});
  auto watcher    = Watcher{};
  trainer.fit(data, {.epochs = 2, .show = Show::nothing}, watcher);
  CHECK(watcher.rows == std::vector<std::int64_t>{279 * 6, 279 * 6, 279 * 6, 2 * 279 * 6, 2 * 279 * 6, 2 * 279 * 6});
  CHECK(watcher.rates == std::vector<float>{1, 1, 1, 2, 2, 2});
  auto plain = tiny::learner_under(MirroredStrategy{Cpu::logical(3)});
  plain.fit(data, {.epochs = 2, .show = Show::nothing});
  CHECK(trainer.hashes() == plain.hashes());  // none of it touches what is learned
}

TEST_CASE("a step combines tensors of its own, between its gradients", "[strategy]") {
  auto const ranks = GENERATE(1, 2, 3);
  auto live        = Live{MirroredStrategy{Cpu::logical(ranks)}, RingAllReduce{}, LocalTransport{}};
  auto copies      = live.create(tiny::learner(), 7);
  auto const data  = tiny::uneven();
  auto batches     = live.distribute(data);
  auto const all   = [&](auto&& of) {
    auto sum = 0.0;
    for (Rank r = 0; r < ranks; ++r) sum += of(r);
    return sum;
  };
  for (auto& batch : batches) {
    auto const wrong = live.run(
        [&](auto& replica, auto& copy, auto& share) {
          auto const me         = replica.id();
          auto mistakes         = 0;
          auto const expect     = [&](bool ok) { mistakes += ok ? 0 : 1; };  // checks are for one thread
          auto [sum, gradients] = replica.value_and_gradient(copy, share);
          auto wide             = std::vector<double>{static_cast<double>(me), 1.0 / 3};
          replica.all_reduce(Span<double>{wide});
          replica.all_reduce(gradients);
          auto most = std::vector<std::int32_t>{me, -me};
          replica.all_reduce(Span<std::int32_t>{most}, Op::max);
          auto at_last = std::vector<float>{static_cast<float>(me + 1)};
          replica.reduce(Span<float>{at_last}, ranks - 1);
          auto counts = std::vector<std::int64_t>{me};
          replica.template mean<IntegerMean::floor>(Span<std::int64_t>{counts});
          auto means = std::vector<float>{static_cast<float>(2 * me)};
          replica.mean(Span<float>{means});
          copy.optimizer.apply(copy.net.variables(), gradients);
          expect(wide[0] == all([](Rank r) { return r; }));
          expect(std::abs(wide[1] - ranks / 3.0) < 1e-12);
          expect(most == std::vector<std::int32_t>{ranks - 1, 0});
          if (me == ranks - 1) expect(static_cast<double>(at_last[0]) == all([](Rank r) { return r + 1; }));
          expect(counts[0] == (ranks - 1) / 2);
          expect(means[0] == static_cast<float>(ranks - 1));
          return mistakes;
        },
        copies, batch);
    for (auto const one : wrong) CHECK(one == 0);
  }
  CHECK(hash_of(copies[0].net.variables().body()) != 0);
  for (auto& copy : copies) CHECK(hash_of(copy.net.variables().body()) == hash_of(copies[0].net.variables().body()));
}

TEST_CASE("a tensor is refused while gradients are on their way", "[strategy]") {
  auto live       = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies     = live.create(tiny::learner(), 7);
  auto const data = tiny::uneven();
  auto batches    = live.distribute(data);
  CHECK_THROWS_WITH(live.run(
                        [](auto& replica, auto& copy, auto& share) {
                          replica.value_and_gradient_ahead(copy, share);
                          auto mine = std::vector<float>{1};
                          replica.all_reduce(Span<float>{mine});
                        },
                        copies, *batches.next()),
                    Catch::Contains("gradients are on their way: all_reduce them before all_reduce of a tensor"));
}

namespace {

/// What 4 replicas under a strategy combine of their ranks: sum, mean, sum by sums(), and the largest at replica 3.
void check_four(auto strategy) {
  auto live          = Live{std::move(strategy), RingAllReduce{}, LocalTransport{}};
  auto const correct = live.run([](auto& replica) {
    auto const mine = static_cast<double>(replica.id());
    auto sum = std::vector<double>{mine}, mean = sum, called = sum, most = sum;
    replica.all_reduce(Span<double>{sum});
    replica.mean(Span<double>{mean});
    replica.sums()(Span<double>{called});
    replica.reduce(Span<double>{most}, 3, Op::max);
    auto const good = sum[0] == 6 && mean[0] == 1.5 && called[0] == 6 && (replica.id() != 3 || most[0] == 3);
    return Sum<float>{good ? 1.0F : 0.0F, replica.num_replicas()};
  });
  auto ranks         = 0;
  for (auto const& one : correct) {
    CHECK(one.value == 1);
    CHECK(one.count == 4);
    ++ranks;
  }
  CHECK(ranks == 4);
}

}  // namespace

TEST_CASE("tensors of one's own are combined over all replicas, also where gradients are not", "[strategy]") {
  using Data      = Axis<"data", 2>;
  auto const four = Cpu::logical(4);
  check_four(MirroredStrategy{four});
  check_four(CentralStorageStrategy{four});
  check_four(ShardedStrategy<Zero::one>{four});
  check_four(ShardedStrategy<Zero::three>{four});
  check_four(HybridStrategy<Zero::two, 2>{four});
  check_four(MeshStrategy{Mesh<Data, Axis<"tensor", 2>>{four}});
  check_four(MeshStrategy{Mesh<Axis<"tensor", 2>, Data>{four}, sharded<Zero::one>("data")});
  check_four(MeshStrategy{Mesh<Data, Axis<"stage", 2>>{four}, pipelined<OneForwardOneBackward<4>>()});
}
