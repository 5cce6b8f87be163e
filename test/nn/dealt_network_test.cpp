// SPDX-License-Identifier: Apache-2.0
#include "test/support/axis_threads.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/one_call.hpp"

#include <chorale/core/random.hpp>
#include <chorale/data/typed_rows.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/nn/compile.hpp>
#include <chorale/nn/layers/dense.hpp>
#include <chorale/nn/layers/embedding.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/networks/recompute.hpp>
#include <chorale/nn/parallel/experts.hpp>
#include <chorale/nn/parallel/sharded_embedding.hpp>
#include <chorale/nn/parallel/sharded_tables.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace dealt_network_test {

using namespace chorale;

namespace {

struct Users : Field<int, 3> {};
struct Items : Field<int, 2> {};
struct Score : Field<float, 6> {};

template <int P> using Ranks = Axis<"data", P>;

template <int P> struct Part {
  nn::Experts<Ranks<P>, 4, 5, nn::Capacity<75>, nn::Uncounted> experts;
  constexpr auto operator()(auto x) const { return x + experts(x); }
};

template <int P> struct Net : nn::Graph<Users, Items> {
  nn::ShardedEmbeddingBag<Ranks<P>, 11, 6> users;
  nn::ShardedTables<Ranks<P>, 6, nn::TableRows<7>, nn::Bag::sum> items;
  nn::Experts<Ranks<P>, 4, 5, nn::Capacity<50>, nn::Top<1>> first;
  nn::Recompute<Part<P>> second;
  constexpr auto operator()(auto user, auto item) const {
    return nn::outputs<Score>(second(first(users(user) + items(item))));
  }
};

struct Data {
  std::vector<int> users, items;
  std::vector<float> scores;

  explicit Data(std::size_t rows) : users(3 * rows), items(2 * rows), scores(6 * rows) {
    auto const random = Random{Seed{2}, rows};
    for (std::size_t i = 0; i < users.size(); ++i) users[i] = static_cast<int>(random.uniform(i) * 11);
    for (std::size_t i = 0; i < items.size(); ++i) items[i] = static_cast<int>(random.uniform(900 + i) * 7);
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = random.uniform(1900 + i, -1.0F, 1.0F);
  }
  Rows<Users, Items, Score> batch() const { return Rows<Users, Items, Score>{users, items, scores}; }
};

template <int P> auto model() {
  return nn::compile<Net<P>>(loss::MeanSquaredError{}, optim::SGD{.learning_rate = 0.1F});
}

/// The gradient of variable i of a copy, rows of tables as well; NaN: a row that is not there.
template <class Copy> std::vector<float> gradient(Copy const& copy, PlanView const& plan, std::size_t i) {
  auto const g = copy.gradients();
  if (!plan.variables[i].spec.by_rows) return {g[i].begin(), g[i].end()};
  auto all = std::vector<float>(plan.variables[i].size, std::nanf(""));
  for (auto const& table : g.tables)
    for (std::size_t k = 0; table.variable() == i && k < table.size(); ++k)
      std::copy_n(table[k].data(), table.width(), &all[table.rows()[k] * table.width()]);
  return all;
}

template <int P> void compare(std::size_t rows) {
  INFO(P << " ranks, " << rows << " rows");
  auto const data = Data{rows};
  auto const one  = model<1>();
  auto alone      = one.instantiate(Cpu{}, Seed{3});
  alone.value_and_gradient(data.batch(), 0, LooksAtEnd{}, Together{});
  auto sums = std::array<float, plan::header>{};
  alone.evaluate(data.batch(), sums);

  auto ranks        = test::AxisThreads{"data", P, true};
  auto losses       = std::array<float, P>{};
  auto const errors = ranks.errors_of([&](AxisGroup const& group) {
    auto const mine   = model<P>();
    auto const groups = std::array{group};
    auto copy         = mine.instantiate(Cpu{}, Seed{3});
    copy.join(groups);
    auto const part = data.batch().part(group.rank, P);
    copy.value_and_gradient(part, part.first_row, LooksAtEnd{}, Together{});
    auto const plan = PlanView{mine.plan}, whole = PlanView{one.plan};
    for (std::size_t i = 0; i < plan.variables.size(); ++i) {
      auto const& spec = plan.variables[i].spec;
      if (std::string_view{plan.variables[i].name} != std::string_view{whole.variables[i].name})
        throw BadArgument{"another name", ""};
      if (spec.split.parts == 1) continue;  // sums over rows, which a strategy adds up
      if (!test::equal_bits(gradient(copy, plan, i), test::part_of(gradient(alone, whole, i), spec, group.rank)))
        throw BadArgument{"other gradients of " + std::string{std::string_view{plan.variables[i].name}}, ""};
    }
    auto here = std::array<float, plan::header>{};
    copy.evaluate(part, here);
    losses[static_cast<std::size_t>(group.rank)] = StepHeader<float>{here}.loss();
    copy.predict(part);
  });
  for (auto const& error : errors) CHECK(error == "");
  CHECK_FALSE(ranks.left());
  auto sum = 0.0F;
  for (auto const loss : losses) sum += loss;
  CHECK(sum == Approx(StepHeader<float>{sums}.loss()).epsilon(1e-5));
}

}  // namespace

TEST_CASE("tables and experts of a network have the bits of one device, also where ranks have no rows",
          "[nn][tables][experts]") {
  compare<2>(13);
  compare<4>(13);
  compare<4>(2);  // two ranks have no rows
}

TEST_CASE("a step of tables and experts allocates nothing once it was seen", "[nn][tables][experts]") {
  auto const data = Data{13};
  auto alone      = model<1>().instantiate(Cpu::logical(1)[0], Seed{3});
  auto const step = [&] {
    auto const before = test::allocations;
    alone.value_and_gradient(data.batch(), 0, LooksAtEnd{}, Together{});
    return test::allocations - before;
  };
  CHECK(step() > 0);
  CHECK(step() == 0);
}

}  // namespace dealt_network_test
