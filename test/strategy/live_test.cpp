// SPDX-License-Identifier: Apache-2.0
#include "test/support/tiny.hpp"

#include <chorale/cluster/cluster.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/strategy/central_storage.hpp>
#include <chorale/strategy/replica.hpp>
#include <chorale/tensor/variable.hpp>

#include <catch2/catch.hpp>

#include <concepts>
#include <cstddef>
#include <future>
#include <stdexcept>
#include <utility>

using namespace chorale;

namespace {

/// True if no T is made of any of `Others`, as an argument or in parentheses.
template <class T, class... Others>
constexpr bool made_of_none = (!std::constructible_from<T, Others> && ...) && (!std::convertible_to<Others, T> && ...);

using OneReplica = Replica<RingAllReduce, LocalEndpoint>;

// A device, a replica, a worker, which is a task, and a mirrored variable: none is made of another, nor of a rank.
static_assert(made_of_none<Cpu, OneReplica&, TaskId, Variable, Rank>);
static_assert(made_of_none<OneReplica, Cpu, TaskId, Variable, Rank>);
static_assert(made_of_none<TaskId, Cpu, OneReplica&, Variable, Rank>);
static_assert(made_of_none<Variable, Cpu, OneReplica&, TaskId, Rank>);
static_assert(made_of_none<Rank, Cpu, OneReplica&, TaskId, Variable>);
static_assert(made_of_none<MirroredStrategy<>, Rank, TaskId, OneReplica&>);  // it takes devices, not how many or which

auto live(int replicas) { return Live{MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}}; }

}  // namespace

TEST_CASE("run calls the step once on every replica, with that replica's arguments", "[strategy]") {
  auto const n  = GENERATE(1, 2, 7);
  auto strategy = live(n);
  auto numbers  = PerReplica<int>(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) numbers[static_cast<std::size_t>(i)] = 10 * i;
  for (int round = 0; round < 50; ++round) {
    auto const ids = strategy.run([](auto& replica, int& number) { return ++number + 1000 * replica.id(); }, numbers);
    for (int i = 0; i < n; ++i) CHECK(ids[static_cast<std::size_t>(i)] == 1010 * i + round + 1);
  }
}

TEST_CASE("reduce weighs by rows and gather keeps the order of ranks", "[strategy]") {
  auto strategy     = live(3);
  auto const losses = PerReplica<Sum<float>>{std::vector<Sum<float>>{{8, 4}, {2, 2}, {0, 0}}};
  CHECK(strategy.reduce(losses).mean() == Approx(10.0 / 6));  // the mean of means would be 1.5 or 1
  CHECK(strategy.gather(PerReplica<int>{std::vector{5, 3, 9}}) == std::vector{5, 3, 9});
}

TEST_CASE("distribute deals out each row once, in order, as evenly as possible", "[strategy]") {
  auto const n    = GENERATE(1, 3, 7);
  auto strategy   = live(n);
  auto const data = tiny::Batches<int>{tiny::batch<int>(25, 4, 1), {10, 13, 2}};
  auto seen       = std::vector<float>{};
  for (auto& shares : strategy.distribute(data)) {
    auto most = std::size_t{0}, least = std::size_t{100}, next = shares[0].first_row;
    for (auto const& share : shares) {
      CHECK(share.first_row == next);
      next += share.rows;
      most  = std::max(most, share.rows);
      least = std::min(least, share.rows);
      seen.insert(seen.end(), share.x.begin(), share.x.end());
    }
    CHECK(most - least <= 1);
  }
  CHECK(seen == data.rows.x);
}

TEST_CASE("an exception of one replica reaches the caller; the others are released", "[strategy]") {
  auto strategy   = live(3);
  auto const data = tiny::batch<int>(12, 64, 1);
  auto copies     = strategy.create(nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::SGD{}), 1);
  CHECK_THROWS_WITH(strategy.run(
                        [&](auto& replica, auto& copy) {
                          if (replica.id() == 1) throw std::runtime_error{"the step of replica 1 went wrong"};
                          auto [loss, gradients] = replica.value_and_gradient(copy, data.view());
                          replica.all_reduce(gradients);  // would wait for replica 1 for ever
                        },
                        copies),
                    "the step of replica 1 went wrong");
}

TEST_CASE("a second thread that calls run meanwhile is told whose it is, and has its turn afterwards", "[strategy]") {
  auto const n  = GENERATE(1, 2);
  auto strategy = live(n);
  auto inside   = std::promise<void>{};
  auto go_on    = std::promise<void>{};
  auto released = go_on.get_future().share();
  auto first    = NamedThread{"the first", [&] {
                             strategy.run([&](auto& replica) {
                               if (replica.id() == 0) inside.set_value();
                               released.wait();
                             });
                           }};
  inside.get_future().wait();
  auto const step = [](auto& replica) { return replica.id(); };
  CHECK_THROWS_AS(strategy.run(step), BadArgument);
  CHECK_THROWS_WITH(strategy.run(step), Catch::Contains("(the first), and thread") &&
                                            Catch::Contains("called it meanwhile; it is for one thread at a time"));
  go_on.set_value();
  first = NamedThread{};  // joins
  CHECK(strategy.run(step).size() == static_cast<std::size_t>(n));
}

TEST_CASE("a step that calls run is told that it cannot", "[strategy]") {
  auto strategy   = live(1);
  auto const step = [](auto& replica) { return replica.id(); };
  CHECK_THROWS_WITH(strategy.run([&](auto&) { strategy.run(step); }),
                    Catch::Contains("a step of Live::run called run"));
  CHECK(strategy.run(step)[0] == 0);
}

TEST_CASE("replicas that read one copy of the variables wait until it is updated", "[strategy]") {
  auto const data  = tiny::batch<int>(24, 64, 1);
  auto const model = nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::Adam{.learning_rate = 0.01F});
  auto const train = [&](auto strategy) {
    auto copies = strategy->create(model, 7);
    strategy->run(
        [&](auto& replica, auto& copy) {
          for (std::size_t step = 0; step < 40; ++step) {  // without an end of run() in between
            auto const first       = step % 2 * 12 + static_cast<std::size_t>(replica.id()) * 4;
            auto [loss, gradients] = replica.value_and_gradient(copy, data.view(first, 4));
            replica.all_reduce(gradients);
            copy.optimizer.apply(copy.net.variables(), gradients);
          }
        },
        copies);
    return std::pair{copies[0].hash(), copies[2].optimizer.now.step};
  };
  auto central = Live{CentralStorageStrategy{Cpu::logical(3)}, RingAllReduce{}, LocalTransport{}};
  auto each    = live(3);
  CHECK(train(&central) == train(&each));
}

TEST_CASE("all copies of a model start with the same bits, and the seed decides which", "[strategy]") {
  auto strategy    = live(4);
  auto const model = nn::compile<tiny::Small>(loss::SparseCrossEntropy{}, optim::SGD{});
  auto const a = strategy.create(model, 1), b = strategy.create(model, 2);
  for (auto const& copy : a) CHECK(copy.hash() == a[0].hash());
  CHECK(a[0].hash() != b[0].hash());
}

TEST_CASE("an empty list of devices is refused", "[strategy]") {
  CHECK_THROWS_WITH(MirroredStrategy{std::vector<Cpu>{}}, Catch::Contains("list of 0 devices"));
}
