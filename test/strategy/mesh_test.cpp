// SPDX-License-Identifier: Apache-2.0
//
// MeshStrategy against the unsplit network on one device, ranks as threads.
#include "test/strategy/mesh.hpp"

#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using namespace mesh_test;

namespace {

using Data   = Axis<"data", 2>;
using Tensor = Axis<"tensor", 2>;
using Grid   = Mesh<Data, Tensor>;
using Turned = Mesh<Tensor, Data>;

static_assert(Grid::size == 4 && Grid::size_of("tensor") == 2 && Grid::size_of("stage") == 1 && !Grid::has("stage"));
static_assert(Grid::coordinates(2) == std::array{1, 0} && Grid::rank_at({1, 0}) == 2);
static_assert(Grid::along("data", 3) == std::vector{1, 3} && Grid::across("data", 3) == std::vector{2, 3});
static_assert(Turned::along("data", 3) == std::vector{2, 3} && Turned::across("data", 3) == std::vector{1, 3});
static_assert(Grid::along("stage", 3) == std::vector{3} && Grid::across("stage", 3) == std::vector{0, 1, 2, 3});
static_assert(Mesh<Axis<"a", 2>, Axis<"b", 3>, Axis<"c", 2>>::coordinates(7) == std::array{1, 0, 1});
static_assert(Strategy<MeshStrategy<Grid>> && StrategyTraits<MeshStrategy<Grid>>::deals_shares);

auto const plain   = optim::Adam{.learning_rate = 0.01F};
auto const clipped = optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F};

}  // namespace

TEST_CASE("a mesh shows where each rank is, and needs as many devices as it has ranks", "[strategy][mesh]") {
  auto const mesh = Mesh<Data, Axis<"tensor", 1>>{Cpu::logical(2)};
  CHECK(mesh.text().starts_with("data  tensor  rank  device\n   0       0     0  1 thread on core"));
  CHECK_THAT(mesh.text(), Catch::Contains("\n   1       0     1  1 thread on core"));
  CHECK_THROWS_WITH(Grid{Cpu::logical(3)},
                    Catch::Contains("the mesh data 2 x tensor 2 has 4 ranks, but there are 3 devices") &&
                        Catch::Contains("axes whose sizes multiply to 3"));
  CHECK_THROWS_WITH((Grid{Cluster::local(2), Cpu::logical(3)}), Catch::Contains("but there are 6 devices"));
}

TEST_CASE("batches are dealt out along the data axis", "[strategy][mesh]") {
  auto const rows_of = [](auto strategy) {
    auto live  = Live{strategy, RingAllReduce{}, LocalTransport{}};
    auto found = std::vector<std::size_t>{};
    for (auto& shares : live.distribute(points(13)))
      for (auto const& share : shares) found.insert(found.end(), {share.first_row, share.rows});
    return found;
  };
  CHECK(rows_of(MeshStrategy{Grid{Cpu::logical(4)}}) == std::vector<std::size_t>{0, 6, 0, 6, 6, 7, 6, 7});
  CHECK(rows_of(MeshStrategy{Turned{Cpu::logical(4)}}) == std::vector<std::size_t>{0, 6, 6, 7, 0, 6, 6, 7});
  CHECK(rows_of(MeshStrategy{Mesh<Tensor>{Cpu::logical(2)}}) == std::vector<std::size_t>{0, 13, 0, 13});
}

TEST_CASE("a network that is split over ranks learns the bits of the whole one", "[strategy][mesh]") {
  auto const begin = Weights{};
  for (auto const& rule : {plain, clipped}) {
    auto const one  = learned_on_one(rule, begin);
    auto const many = [&](auto mesh, auto reduce) {
      return learned<Tensor>(MeshStrategy{mesh}, rule, begin, reduce, LocalTransport{});
    };
    auto const all = many(Grid{Cpu::logical(4)}, Reproducible<8>{});
    CHECK(all == one);
    CHECK(all.evaluated == Approx(one.evaluated));                         // added up over shares, in another order
    CHECK(apart(all.outputs, one.outputs) < 1e-6);
    CHECK(many(Turned{Cpu::logical(4)}, Reproducible<8>{}) == one);
    CHECK(apart(many(Grid{Cpu::logical(4)}, RingAllReduce{}).values, one.values) < 1e-5);
    CHECK(apart(many(Grid{Cpu::logical(4)}, DirectAllReduce{}).values, one.values) < 1e-5);
  }
  CHECK(learned_on_one(plain, begin) != learned_on_one(clipped, begin));   // so it does clip
}
