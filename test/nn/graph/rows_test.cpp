// SPDX-License-Identifier: Apache-2.0
//
// Tables whose gradients are rows: what travels, what is updated, and that the result is that of one replica.
#include "test/nn/graph/tickets.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/folder.hpp"

#include <chorale/nn/derivatives/gradient_error.hpp>
#include <chorale/transport/shared_memory.hpp>
#include <chorale/transport/tcp.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::test::tickets;
using chorale::test::allocations;

namespace {

auto one_device() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }

struct Ids : Field<int, 4> {};
struct Mean : Field<float, 3> {};

template <nn::Bag As> struct BagOfIds : nn::Graph<Ids> {
  nn::EmbeddingBag<20, 3, As> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

struct Whole : nn::Graph<Ids> {
  nn::EmbeddingBag<20, 3, nn::Bag::mean, nn::DenseGradient> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

}  // namespace

TEST_CASE("a table lies behind the trailer, and has no place in the gradients", "[nn][graph][rows]") {
  constexpr auto const& rows  = nn::plan_of<Network>;
  constexpr auto const& dense = nn::plan_of<test::tickets::Dense>;
  STATIC_REQUIRE(rows.table_elements == plan::aligned(50 * 5));
  STATIC_REQUIRE(dense.table_elements == 0);
  STATIC_REQUIRE(rows.elements + rows.table_elements == dense.elements);
  STATIC_REQUIRE(rows.parameters == dense.parameters);
  STATIC_REQUIRE(rows.hash != dense.hash);
  CHECK(rows.variables[0].offset == rows.elements);
  CHECK(rows.variables[0].slot_offset() + plan::header + plan::trailer == rows.elements);
}

TEST_CASE("gradients that are rows train as dense ones do under SGD", "[nn][graph][rows]") {
  auto const rule =
      GENERATE(optim::SGD{.learning_rate = 0.1F}, optim::SGD{.learning_rate = 0.1F, .global_clipnorm = 0.05F});
  auto const replicas = GENERATE(1, 2, 3);
  auto const one      = trained(model<test::tickets::Dense>(rule), one_device());
  CHECK(difference(trained(model(rule), MirroredStrategy{Cpu::logical(replicas)}), one) < 1e-5);
}

TEST_CASE("an accumulated update of rows is that of one large batch", "[nn][graph][rows]") {
  auto const replicas = GENERATE(1, 3);
  auto const rule     = optim::SGD{.learning_rate = 0.1F};
  auto const one      = trained(model<test::tickets::Dense>(rule), one_device(), RingAllReduce{}, LocalTransport{}, 3);
  auto const got = trained(model(rule), MirroredStrategy{Cpu::logical(replicas)}, RingAllReduce{}, LocalTransport{}, 3);
  CHECK(difference(got, one) < 1e-5);
}

TEST_CASE("rows that did not come rest, with their moments", "[nn][graph][rows]") {
  auto copy         = model().instantiate(Cpu::logical(1)[0], 1);
  auto const titles = std::vector<int>(6, 3), bodies = std::vector<int>(9, 7), labels = std::vector<int>(1);
  auto const tags = std::vector<float>(4), wanted = std::vector<float>(1, 2.0F);
  auto const batch  = Rows<Title, Body, Tags, Priority, Department>{titles, bodies, tags, wanted, labels};
  auto const table  = copy.net.variables()[0].value;
  auto const before = std::vector<float>(table.begin(), table.end());
  copy.value_and_gradient(batch, 0, LooksAtEnd{});
  REQUIRE(copy.gradients().tables.size() == 1);
  auto const rows = copy.gradients().tables[0].rows();
  CHECK(std::set<std::uint32_t>(rows.begin(), rows.end()) == std::set<std::uint32_t>{3, 7});
  CHECK(rows.size() == 2);
  copy.optimizer.apply(copy.net.variables(), copy.gradients());
  for (std::size_t r = 0; r < 50; ++r)
    CHECK(std::equal(&before[r * 5], &before[r * 5] + 5, &table[r * 5]) == (r != 3 && r != 7));
  auto const slots = copy.optimizer.slots();
  auto const at    = copy.net.variables().plan[0].slot_offset();
  CHECK(slots[at + 3 * 5] != 0);
  CHECK(slots[at + 4 * 5] == 0);
}

TEMPLATE_TEST_CASE("where every row comes, an optimizer on rows is that on the whole table", "[nn][graph][rows]",
                   optim::Adam, optim::Nadam, optim::RMSprop, optim::Lion) {
  auto const ids = [] {
    auto all = std::vector<int>(60);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i * 7 % 20);
    return all;
  }();
  auto const wanted = std::vector<float>(45, 0.7F);
  auto const batch  = Rows<Ids, Mean>{ids, wanted};
  auto rule         = TestType{.learning_rate = 0.01F};
  if constexpr (requires { rule.centered; }) rule.centered = true, rule.momentum = 0.5F;
  auto rows  = nn::compile<BagOfIds<nn::Bag::mean>>(loss::MeanSquaredError{}, rule).instantiate(Cpu::logical(1)[0], 1);
  auto dense = nn::compile<Whole>(loss::MeanSquaredError{}, rule).instantiate(Cpu::logical(1)[0], 1);
  for (int step = 0; step < 5; ++step) {
    rows.value_and_gradient(batch, 0, LooksAtEnd{});
    dense.value_and_gradient(batch, 0, LooksAtEnd{});
    rows.optimizer.apply(rows.net.variables(), rows.gradients());
    dense.optimizer.apply(dense.net.variables(), dense.gradients());
  }
  CHECK(std::ranges::equal(rows.net.variables()[0].value, dense.net.variables()[0].value));
}

TEST_CASE("LAMB, which takes whole variables, refuses gradients that are rows", "[nn][graph][rows]") {
  auto const copy = [](auto const& net) { net.instantiate(Cpu::logical(1)[0], 1); };
  CHECK_THROWS_WITH(copy(nn::compile<BagOfIds<nn::Bag::mean>>(loss::MeanSquaredError{}, optim::Lamb{})),
                    Catch::Contains("optim::Lamb takes the norm of each whole variable, but the gradient of "
                                    "embedding_bag/embeddings is rows: use nn::Embedding<.., nn::DenseGradient>"));
  CHECK_NOTHROW(copy(nn::compile<Whole>(loss::MeanSquaredError{}, optim::Lamb{})));
}

TEST_CASE("a bag is the sum or the mean of the vectors of its ids", "[nn][graph][rows]") {
  auto const ids   = std::vector<int>{1, 2, 2, 19};
  auto const none  = std::vector<float>(3);
  auto const batch = Rows<Ids, Mean>{ids, none};
  auto const check = [&](auto const& compiled, float factor) {
    auto copy        = compiled.instantiate(Cpu::logical(1)[0], 1);
    auto const table = copy.net.variables()[0].value;
    auto const y     = copy.predict(batch);
    for (std::size_t c = 0; c < 3; ++c)
      CHECK(y[c] == Approx(factor * (table[3 + c] + 2 * table[6 + c] + table[57 + c])));
  };
  check(nn::compile<BagOfIds<nn::Bag::mean>>(loss::MeanSquaredError{}, optim::SGD{}), 0.25F);
  check(nn::compile<BagOfIds<nn::Bag::sum>>(loss::MeanSquaredError{}, optim::SGD{}), 1);
}

TEST_CASE("only the rows that came travel", "[nn][graph][rows]") {
  auto strategy = Live{MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies   = strategy.create(model());
  auto stream   = batches().stream(0);
  auto shares   = PerReplica<decltype(batches())::element>(2);
  auto batch    = shares[0];
  REQUIRE(stream.next(batch));
  for (int i = 0; i < 2; ++i) shares[static_cast<std::size_t>(i)] = batch.part(i, 2);
  auto rows = PerReplica<std::size_t>(2), bytes = PerReplica<std::size_t>(2);
  strategy.run(
      [](auto& replica, auto& copy, auto const& share, std::size_t& unique, std::size_t& sent) {
        auto result = replica.value_and_gradient(copy, share);
        unique      = result.gradients.tables[0].rows().size();
        replica.all_reduce(result.gradients);
        sent = replica.traffic().bytes;
      },
      copies, shares, rows, bytes);
  for (std::size_t i = 0; i < 2; ++i) {
    auto ids = std::set<int>{};
    for (auto const id : shares[i][Title{}]) ids.insert(id);
    for (auto const id : shares[i][Body{}]) ids.insert(id);
    CHECK(rows[i] == ids.size());
    CHECK(bytes[i] ==
          nn::plan_of<Network>.bytes_per_step() + ids.size() * (2 * sizeof(std::uint32_t) + 5 * sizeof(float)));
  }
}

TEST_CASE("rows of a bag share a vector until one of them gets another gradient", "[nn][graph][rows]") {
  auto table   = RowGradients{0, 10, 2};
  auto const a = std::vector<float>{1, 2}, b = std::vector<float>{10, 20};
  auto const of_bag = table.share(a.data());
  for (auto const row : {3U, 5U, 7U}) table.add_shared(row, of_bag);
  CHECK(table.values().size() == 2);
  table.add(5, b.data());
  table.add(6, b.data());
  table.add_shared(3, of_bag);  // an id that a bag has twice
  auto const want = std::vector<std::vector<float>>{{2, 4}, {11, 22}, {1, 2}, {10, 20}};
  REQUIRE(table.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::ranges::equal(table[i], want[i]));
  auto list = RowList{};
  list.append(table), list.append(table);
  auto twice = RowGradients{0, 10, 2};
  twice.add(list.view());
  REQUIRE(twice.size() == 4);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t c = 0; c < 2; ++c) CHECK(twice[i][c] == 2 * want[i][c]);
  twice.clear();
  CHECK(twice.size() == 0);
  twice.add(3, b.data());
  CHECK(std::ranges::equal(twice[0], b));
}

TEST_CASE("a gradient of a row that is not finite is named, and changes nothing", "[nn][graph][rows]") {
  auto const ids   = std::vector<int>{1, 2, 3, 4};
  auto const bad   = std::vector<float>(3, std::numeric_limits<float>::quiet_NaN());
  auto const batch = Rows<Ids, Mean>{ids, bad};
  auto copy       = nn::compile<BagOfIds<nn::Bag::sum>>(loss::Given{}, optim::SGD{}).instantiate(Cpu::logical(1)[0], 1);
  auto const hash = copy.hash();
  copy.value_and_gradient(batch, 0, LooksAtEnd{});
  CHECK(copy.gradients().trailer().faults() == 1);
  CHECK_THROWS_AS(copy.optimizer.apply(copy.net.variables(), copy.gradients()), NumericFault);
  CHECK(copy.hash() == hash);
}

TEST_CASE("a run with tables continues from a checkpoint with the bits of one that never stopped",
          "[nn][graph][rows]") {
  auto const folder = test::Folder{};
  auto const run    = [&](int epochs, int replicas, std::string const& to) {
    auto trainer = Trainer{model(), MirroredStrategy{Cpu::logical(replicas)}, Reproducible{}, LocalTransport{}, 3};
    trainer.fit(batches(), {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder / to}});
    return trainer.hashes()[0];
  };
  run(2, 1, "stopped");
  CHECK(run(4, 3, "stopped") == run(4, 2, "whole"));
}

TEST_CASE("a step with tables allocates nothing once its rows were seen", "[nn][graph][rows]") {
  auto const ids   = std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8};
  auto const to    = std::vector<float>(6, 0.5F);
  auto const batch = Rows<Ids, Mean>{ids, to};
  auto copy =
      nn::compile<BagOfIds<nn::Bag::mean>>(loss::MeanSquaredError{}, optim::Adam{}).instantiate(Cpu::logical(1)[0], 1);
  auto const step = [&] {
    copy.value_and_gradient(batch, 0, LooksAtEnd{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
  };
  step();
  auto const before = allocations;
  for (int i = 0; i < 20; ++i) step();
  CHECK(allocations == before);
}

TEST_CASE("gradients of embeddings are those of differences", "[nn][graph][rows][gradient]") {
  CHECK(nn::gradient_error<nn::Embedding<5, 3>, nn::Of<int, 4>>() < 1e-3);
  CHECK(nn::gradient_error<nn::Embedding<5, 3, nn::DenseGradient>, nn::Of<int, 4>>() < 1e-3);
  CHECK(nn::gradient_error<nn::EmbeddingBag<5, 3>, nn::Of<int, 4>>() < 1e-3);
  CHECK(nn::gradient_error<nn::EmbeddingBag<5, 3, nn::Bag::sum, nn::DenseGradient>, nn::Of<int, 4>>() < 1e-3);
}
