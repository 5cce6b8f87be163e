// SPDX-License-Identifier: Apache-2.0
#include "test/placement/shapes.hpp"

#include <chorale/placement/sharded.hpp>

#include <catch2/catch.hpp>

#include <algorithm>

using namespace chorale;
using namespace chorale::placement;
using namespace chorale::test;

static_assert(Placement<Central> && Placement<RoundRobin> && Placement<GreedyByBytes>);
static_assert(Sharding<RoundRobin> && Sharding<GreedyByBytes> && !Sharding<Central> && !Sharding<Mirrored>);
static_assert(Central::copies_on(8) == 1 && !Central::writes_everywhere);
static_assert(GreedyByBytes::copies_on(8) == 1 && !GreedyByBytes::writes_everywhere);

namespace {

constexpr auto five = std::array{VariableShape{"a", {30}}, VariableShape{"b", {50}}, VariableShape{"c", {20}},
                                 VariableShape{"d", {40}}, VariableShape{"e", {}}};

constexpr auto servers_of(auto const& layout) {
  auto servers = std::array<int, 5>{};
  for (auto const& piece : layout.pieces) servers[piece.variable] = piece.server;
  return servers;
}

static_assert(servers_of(layout_of<RoundRobin, five, 2>) == std::array{0, 1, 0, 1, 0});
static_assert(servers_of(layout_of<GreedyByBytes, five, 2>) == std::array{1, 0, 0, 1, 0});  // 50, 40, 30, 20, 1
static_assert(layout_of<GreedyByBytes, five, 2>.bytes_of(0) == 4 * 71);
static_assert(layout_of<GreedyByBytes, five, 2>.bytes_of(1) == 4 * 70);
static_assert(layout_of<RoundRobin, five, 2, 2>.bytes_of(1) == 3 * 4 * 90);  // with two slots each

/// Bytes of the heaviest server in the best of all assignments.
std::size_t best_of_all(Span<VariableShape const> shapes, int servers) {
  auto loads      = std::vector<std::size_t>(static_cast<std::size_t>(servers));
  auto best       = std::numeric_limits<std::size_t>::max();
  auto const rest = [&](auto const& self, std::size_t next) -> void {
    if (next == shapes.size()) {
      best = std::min(best, *std::max_element(loads.begin(), loads.end()));
      return;
    }
    for (auto& load : loads) {
      load += shapes[next].bytes();
      self(self, next + 1);
      load -= shapes[next].bytes();
    }
  };
  rest(rest, 0);
  return best;
}

std::size_t heaviest(Layout<> const& layout) {
  auto most = std::size_t{0};
  for (int server = 0; server < layout.servers; ++server) most = std::max(most, layout.bytes_of(server));
  return most;
}

}  // namespace

TEST_CASE("greedy by bytes is at most 4/3 of the best of all assignments", "[placement]") {
  auto worse = 0;
  for (std::uint64_t which = 0; which < 200; ++which) {
    auto shapes = random_shapes(which);
    if (shapes.size() > 7) shapes.resize(7);
    for (int const servers : {2, 3}) {
      auto const greedy = heaviest(lay_out(GreedyByBytes{}, shapes, servers)), best = best_of_all(shapes, servers);
      CHECK(3 * greedy <= 4 * best);
      CHECK(greedy >= best);
      worse += greedy > best;
    }
  }
  CHECK(worse > 0);  // so that the bound was put to the test
}

TEST_CASE("greedy by bytes is at most the mean and one largest piece", "[placement]") {
  for (std::uint64_t which = 0; which < 300; ++which) {
    auto const shapes = random_shapes(which);
    auto largest      = std::size_t{0};
    for (auto const& shape : shapes) largest = std::max(largest, shape.bytes());
    for (int servers = 1; servers <= 9; ++servers) {
      auto const layout = lay_out(GreedyByBytes{}, shapes, servers);
      CHECK(heaviest(layout) <= layout.total_bytes() / static_cast<std::size_t>(servers) + largest);
    }
  }
}

TEST_CASE("round robin deals variables out in turn, greedy looks at their bytes", "[placement]") {
  auto const shapes = std::vector<VariableShape>{{"a", {90}}, {"b", {10}}, {"c", {80}}, {"d", {20}}};
  CHECK(heaviest(lay_out(RoundRobin{}, shapes, 2)) == 4 * 170);
  CHECK(heaviest(lay_out(GreedyByBytes{}, shapes, 2)) == 4 * 100);
  CHECK(lay_out(RoundRobin{}, shapes, 2).imbalance() == Approx(1.7));
  CHECK(lay_out(GreedyByBytes{}, shapes, 2).imbalance() == Approx(1));
  CHECK(lay_out(GreedyByBytes{}, shapes, 400).imbalance() == Approx(180));  // 90 of 200, over the mean of 400 servers
}

TEST_CASE("an optimizer's slots do not change where a piece goes", "[placement]") {
  for (std::uint64_t which = 0; which < 100; ++which) {
    auto const shapes = random_shapes(which);
    auto const none = lay_out(GreedyByBytes{}, shapes, 3), two = lay_out(GreedyByBytes{}, shapes, 3, 2);
    CHECK(none.pieces == two.pieces);
    CHECK(3 * none.total_bytes() == two.total_bytes());
  }
}
