// SPDX-License-Identifier: Apache-2.0
//
// Tables whose gradients are rows, where replicas learn apart for some steps.
#include "test/nn/graph/tickets.hpp"

#include <chorale/transport/counting.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace rows_apart_test {

using namespace chorale;
using namespace chorale::test::tickets;
using Whole = chorale::test::tickets::Dense;

namespace {

auto mirrored(int replicas) { return MirroredStrategy{Cpu::logical(replicas)}; }
auto one_device() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }

struct Ids : Field<int, 2> {};
struct Mean : Field<float, 3> {};
struct BagOfIds : nn::Graph<Ids> {  // a table, and nothing else
  nn::EmbeddingBag<40'000, 3, nn::Bag::sum> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

/// Learns from one row on each replica, with ids of its own and one of all, and a gradient of 1 + its rank.
template <class L, class Copies> void step(L& live, Copies& copies, int n) {
  live.run(
      [&](auto& replica, auto& copy) {
        auto const ids = std::vector<int>{0, 10 * (n + 1) + replica.id()};
        auto const d   = std::vector<float>(3, 1.0F + static_cast<float>(replica.id()));
        auto result    = replica.value_and_gradient(copy, Rows<Ids, Mean>{ids, d});
        live.update(replica, copy, result.gradients);
      },
      copies);
}

template <class Copy> float row_of(Copy const& copy, int row) {
  return copy.net.variables()[0].value[static_cast<std::size_t>(row) * 3];
}

}  // namespace

TEST_CASE("averages of rows in every step are the learning of one replica under SGD", "[nn][graph][rows][apart]") {
  auto const rule     = optim::SGD{.learning_rate = 0.1F};
  auto const replicas = GENERATE(1, 2, 3);
  auto const one      = trained(model(rule), one_device());
  auto const got      = trained(model(rule), local_sgd<1>(mirrored(replicas)));
  for (auto const hash : got.hashes) CHECK(hash == got.hashes[0]);
  CHECK(difference(got, one) < 1e-5);
}

TEST_CASE("averages of rows are those of whole tables, and so are pairs that gossip", "[nn][graph][rows][apart]") {
  auto const rule  = optim::SGD{.learning_rate = 0.1F};
  auto const check = [&](auto const& strategy) {
    CHECK(difference(trained(model(rule), strategy), trained(model<Whole>(rule), strategy)) < 1e-5);
    auto const adam = trained(model(), strategy);
    for (auto const hash : adam.hashes) CHECK(hash == adam.hashes[0]);
  };
  check(local_sgd<3>(mirrored(3)));
  check(Gossip{mirrored(3)});
}

TEST_CASE("rows alone travel when replicas average, by their weights", "[nn][graph][rows][apart]") {
  auto live         = Live{local_sgd<2>(mirrored(2)), RingAllReduce{}, Counting<LocalTransport>{}};
  auto copies       = live.create(nn::compile<BagOfIds>(loss::Given{}, optim::SGD{.learning_rate = 1}));
  auto const before = std::vector<float>{row_of(copies[0], 0), row_of(copies[0], 10), row_of(copies[0], 21)};
  step(live, copies, 0);
  CHECK(row_of(copies[0], 0) == Approx(before[0] - 1));
  CHECK(row_of(copies[1], 0) == Approx(before[0] - 2));
  auto const bytes = live.local_replica(0).sent().bytes;
  step(live, copies, 1);                                      // and averages
  CHECK(live.local_replica(0).sent().bytes - bytes < 2'000);  // of a table of 480,000
  for (int i = 0; i < 2; ++i) {
    auto const& copy = copies[static_cast<std::size_t>(i)];
    CHECK(row_of(copy, 0) == Approx(before[0] - 3));     // the mean of -2 and -4
    CHECK(row_of(copy, 10) == Approx(before[1] - 0.5));  // -1 and 0
    CHECK(row_of(copy, 21) == Approx(before[2] - 1));    // 0 and -2
  }
  CHECK(copies[0].hash() == copies[1].hash());
}

TEST_CASE("a table alone gossips", "[nn][graph][rows][apart]") {
  auto live         = Live{Gossip{mirrored(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies       = live.create(nn::compile<BagOfIds>(loss::Given{}, optim::SGD{.learning_rate = 1}));
  auto const before = std::vector<float>{row_of(copies[0], 0), row_of(copies[0], 10), row_of(copies[0], 11)};
  for (int n = 0; n < 3; ++n) step(live, copies, n);
  for (int i = 0; i < 2; ++i) {
    auto const& copy = copies[static_cast<std::size_t>(i)];
    CHECK(row_of(copy, 0) == Approx(before[0] - 4.5));
    CHECK(row_of(copy, 10) == Approx(before[1] - 0.5));
    CHECK(row_of(copy, 11) == Approx(before[2] - 1));
  }
  live.finish(copies);
  CHECK(copies[0].hash() == copies[1].hash());
}

TEST_CASE("a strategy of one's own averages whole tables, and slots of tables", "[nn][graph][rows][apart]") {
  auto live   = Live{mirrored(3), RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<BagOfIds>(loss::Given{}, optim::Adam{}));
  live.run(
      [](auto& replica, auto& copy) {
        auto gradients  = copy.gradients();
        auto const v    = copy.net.variables();
        auto const rank = static_cast<float>(replica.id());
        for (std::size_t i = 0; i < v[0].value.size(); ++i) v[0].value[i] = static_cast<float>(i % 100) + rank;
        auto const slots = copy.optimizer.slots();
        for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<float>(i % 7) - rank;
        replica.average(v, gradients, 1 + rank);  // weights 1, 2, 3
        replica.average_slots(slots, gradients);
      },
      copies);
  for (auto const& copy : copies) {
    auto const table = copy.net.variables()[0].value;
    auto wrong       = std::size_t{0};
    for (std::size_t i = 0; i < table.size(); ++i)
      wrong += std::abs(table[i] - static_cast<float>(i % 100) - 8.0F / 6) > 1e-4F ? 1 : 0;
    auto const slots  = copy.optimizer.slots();
    auto const stride = slots.size() / 2, at = copy.net.variables().plan[0].slot_offset();
    for (auto const slot : {std::size_t{0}, stride})
      for (std::size_t i = slot + at; i < slot + at + table.size(); ++i)
        wrong += std::abs(slots[i] - static_cast<float>(i % 7) + 1) > 1e-4F ? 1 : 0;
    CHECK(wrong == 0);
  }
}

}  // namespace rows_apart_test
