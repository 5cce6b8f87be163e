// SPDX-License-Identifier: Apache-2.0
//
// Groups of variables, and averages of them, where the gradient of a table is rows.
#include "test/nn/graph/tickets.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace row_groups_test {

using namespace chorale;
using namespace chorale::test::tickets;
using optim::Averaged;
using optim::Grouped;

namespace {

constexpr auto table = std::size_t{50} * 5;  // numbers of the table, the first variable

std::vector<float> of_table(Trained const& got) {
  return {got.values.begin(), got.values.begin() + static_cast<std::ptrdiff_t>(table)};
}
std::vector<float> of_others(Trained const& got) {
  return {got.values.begin() + static_cast<std::ptrdiff_t>(table), got.values.end()};
}
template <class Net = Network, class O> Trained on(int replicas, O rule) {
  return trained(model<Net>(rule), MirroredStrategy{Cpu::logical(replicas)}, Reproducible{});
}

}  // namespace

TEST_CASE("a group that changes nothing changes no bit of a table", "[nn][graph][groups]") {
  auto const rule  = optim::Adam{.learning_rate = 1e-2F};
  auto const plain = on(1, rule);
  CHECK(on(1, Grouped{rule, {{.names = "embedding/*"}, {.names = "*/bias"}}}).values == plain.values);
  CHECK(on(1, Grouped{rule, {{.names = "*"}}}).values == plain.values);
}

TEST_CASE("a frozen table keeps its bits, and a table has a rate of its own", "[nn][graph][groups]") {
  auto const rule   = optim::Adam{.learning_rate = 1e-2F};
  auto const start  = model(rule).instantiate(Cpu::logical(1)[0], 3);
  auto const before = start.net.variables()[0].value;
  auto const frozen = on(1, Grouped{rule, {optim::frozen("embedding*")}});
  CHECK(std::ranges::equal(of_table(frozen), before));
  CHECK(of_others(frozen) != of_others(on(1, rule)));  // its rows have moved there
  auto const still = on(1, Grouped{rule, {{.names = "embedding*", .learning_rate = 0}}});
  CHECK(still.values == frozen.values);
}

TEST_CASE("groups of rows have the bits of one replica on any number of them", "[nn][graph][groups]") {
  auto const rule = Grouped{
      Averaged{optim::AdamW{.learning_rate = 1e-2F, .global_clipnorm = 0.2F}, 0.9F},
      {{.names = "embedding*", .learning_rate = 2}, optim::frozen("dense_1*"), {.names = "*/bias", .weight_decay = 0}}};
  auto const one = on(1, rule);
  for (auto const replicas : {2, 3}) CHECK(on(replicas, rule).values == one.values);
}

TEST_CASE("the gradient rows of a frozen table do not count in the norm", "[nn][graph][groups]") {
  auto const groups = std::vector<optim::ParameterGroup>{optim::frozen("embedding*")};
  auto const rule   = Grouped{optim::SGD{.learning_rate = 0.1F, .global_clipnorm = 0.05F}, groups};
  auto const dense = on<Dense>(1, rule), rows = on(1, rule);
  CHECK(difference(dense, rows) < 1e-5);
  CHECK(difference(on(1, optim::SGD{.learning_rate = 0.1F, .global_clipnorm = 0.05F}), rows) > 1e-3);
}

TEST_CASE("averages of a table follow its rows", "[nn][graph][averages]") {
  auto const rule  = Averaged{optim::SGD{.learning_rate = 0.05F}, 0.5F};  // without a slot of its own in use
  auto trainer     = Trainer{model(rule), OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 3};
  auto const plain = trained(model(optim::SGD{.learning_rate = 0.05F}), OneDeviceStrategy{Cpu::logical(1)[0]});
  trainer.fit(batches(), {.epochs = 2, .show = Show::nothing});
  auto const now = trainer.variables()[0].value;
  CHECK(std::ranges::equal(now, of_table(plain)));  // averages change nothing
  auto const own = std::vector<float>(now.begin(), now.end());
  auto moved     = std::size_t{0};
  with_averages(trainer, [&] {
    for (std::size_t i = 0; i < table; ++i) moved += trainer.variables()[0].value[i] != own[i] ? 1 : 0;
  });
  CHECK(moved > table / 2);
  CHECK(std::ranges::equal(trainer.variables()[0].value, own));
}

}  // namespace row_groups_test
