// SPDX-License-Identifier: Apache-2.0
//
// MeshStrategy against the unsplit network on one device, ranks as threads.
#include "test/strategy/mesh.hpp"
#include "test/support/count_allocations.hpp"

#include <chorale/reduce/direct.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/strategy/live.hpp>
#include <chorale/trainer/retarget.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
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
    CHECK(all.evaluated == Approx(one.evaluated));  // added up over shares, in another order
    CHECK(apart(all.outputs, one.outputs) < 1e-6);
    REQUIRE(all.counts.size() == one.counts.size());
    for (std::size_t i = 0; i < one.counts.size(); ++i) CHECK(all.counts[i] == Approx(one.counts[i]));
    CHECK(many(Turned{Cpu::logical(4)}, Reproducible<8>{}) == one);
    CHECK(apart(many(Grid{Cpu::logical(4)}, RingAllReduce{}).values, one.values) < 1e-5);
    CHECK(apart(many(Grid{Cpu::logical(4)}, DirectAllReduce{}).values, one.values) < 1e-5);
    auto const shards = MeshStrategy{Grid{Cpu::logical(4)}, sharded<Zero::one>("data")};
    CHECK(apart(learned<Tensor>(shards, rule, begin, RingAllReduce{}, LocalTransport{}).values, one.values) < 1e-5);
  }
  CHECK(learned_on_one(plain, begin) != learned_on_one(clipped, begin));  // so it does clip
}

TEST_CASE("a run goes on under another layout, with the same bits", "[strategy][mesh][checkpoint]") {
  auto const folder = chorale::test::Folder{};
  auto const after  = [&](auto& trainer, int epochs, char const* checkpoints) {
    trainer.fit(points(), {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder / checkpoints}});
    trainer.save(folder / "values");
    return numbers_in(folder / "values");
  };
  auto const whole = [&](auto const& rule, int epochs, char const* checkpoints) {
    auto one = on_one_device(rule);
    return after(one, epochs, checkpoints);
  };
  auto const split = [&](auto strategy, auto const& rule, int epochs, char const* checkpoints) {
    auto many = Trainer{surface<Tensor>(rule), strategy, Reproducible<8>{}, LocalTransport{}, 7};
    return after(many, epochs, checkpoints);
  };
  auto const grid   = MeshStrategy{Grid{Cpu::logical(4)}};
  auto const turned = MeshStrategy{Turned{Cpu::logical(4)}};
  auto const shards = MeshStrategy{Grid{Cpu::logical(4)}, sharded<Zero::one>("data")};

  auto const wanted = whole(clipped, 3, "alone");  // first values too are those of the whole
  split(grid, clipped, 1, "from many");
  split(turned, clipped, 2, "from many");
  CHECK(whole(clipped, 3, "from many") == wanted);
  whole(clipped, 1, "from one");
  CHECK(split(grid, clipped, 3, "from one") == wanted);

  auto const unclipped = whole(plain, 3, "alone, not clipped");
  CHECK(unclipped != wanted);
  split(shards, plain, 1, "from shards");
  whole(plain, 2, "from shards");
  CHECK(split(shards, plain, 3, "from shards") == unclipped);
  split(shards, clipped, 1, "from clipped shards");  // the norm of parts of which ranks have shards
  whole(clipped, 2, "from clipped shards");
  CHECK(split(shards, clipped, 3, "from clipped shards") == wanted);
  auto many = Trainer{surface<Tensor>(clipped), grid, Reproducible<8>{}, LocalTransport{}, 7};
  CHECK_THROWS_WITH(retarget(std::move(many), turned, Reproducible<8>{}, LocalTransport{}),
                    Catch::Contains("of columns/kernel each of 2 ranks along tensor has a part"));
  CHECK_THROWS_WITH((MeshStrategy{Grid{Cpu::logical(4)}, sharded<Zero::one>("tensor")}),
                    Catch::Contains("got \"tensor\""));
}

TEST_CASE("all ranks of a mesh leave out a step of which one part is not finite", "[strategy][mesh]") {
  auto live    = Live{MeshStrategy{Grid{Cpu::logical(4)}}, RingAllReduce{}, LocalTransport{}};
  auto copies  = live.create(surface<Tensor>(plain), 7);
  auto refused = PerReplica<std::string>(4);
  auto stream  = live.distribute(points(13));
  auto* shares = stream.next();
  REQUIRE(shares != nullptr);
  auto const step = [&](auto& replica, auto& copy, auto& batch, std::string& why) {
    auto const before = copy.hash();
    auto result       = replica.value_and_gradient(copy, batch);
    if (replica.axes()[1].rank == 1) result.gradients[2][5] = 3e38F;  // finite on each, but not their sum
    try {
      live.update(replica, copy, result.gradients);
    } catch (NumericFault const& fault) { why = fault.what(); }
    if (copy.hash() != before) why = "changed";
  };
  live.run(step, copies, *shares, refused);
  for (auto const& why : refused)
    CHECK_THAT(why, Catch::Contains("the gradient of columns/kernel of step 0 is not finite on replica"));
  for (auto& copy : copies) copy.optimizer.on_non_finite = NonFinite::skip;
  live.run(step, copies, *shares, refused);
  for (auto& copy : copies) CHECK(copy.optimizer.skipped == 1);
  for (auto const& why : refused) CHECK(why != "changed");
}

TEST_CASE("copies of a variable, and of one part, are compared", "[strategy][mesh]") {
  auto const changed = [](std::vector<std::size_t> const& ranks, std::size_t variable) {
    auto const grid = MeshStrategy{Grid{Cpu::logical(4)}};
    auto many       = Trainer{surface<Tensor>(plain), grid, RingAllReduce{}, LocalTransport{}, 7};
    for (auto const rank : ranks) many.copies()[rank].net.variables()[variable].value[0] += 0.5F;
    many.fit(points(), quietly);
  };
  CHECK_NOTHROW(changed({}, 0));
  CHECK_THROWS_WITH(changed({2}, 2), Catch::Contains("columns/kernel"));   // one of the two with part 0
  CHECK_THROWS_WITH(changed({1, 3}, 0), Catch::Contains("dense/kernel"));  // both with part 1, of what all have
  CHECK_NOTHROW(changed({1, 3}, 2));                                       // all that have this part
}

TEST_CASE("after a step that failed a mesh goes on", "[strategy][mesh]") {
  auto live       = Live{MeshStrategy{Grid{Cpu::logical(4)}}, RingAllReduce{}, LocalTransport{}};
  auto copies     = live.create(surface<Tensor>(plain), 7);
  auto stream     = live.distribute(points(13));
  auto* shares    = stream.next();
  auto const step = [&](auto& replica, auto& copy, auto& batch, bool fails) {
    if (fails && replica.id() == 3) throw BadArgument{"no."};
    auto result = replica.value_and_gradient_ahead(copy, batch);
    live.update(replica, copy, result.gradients);
  };
  CHECK_THROWS_WITH(live.run([&](auto& r, auto& c, auto& b) { step(r, c, b, true); }, copies, *shares),
                    Catch::Contains("no."));
  live.run([&](auto& r, auto& c, auto& b) { step(r, c, b, false); }, copies, *shares);
  for (std::size_t i = 0; i < 4; ++i) CHECK(copies[i].hash() == copies[(i + 2) % 4].hash());
}

TEST_CASE("the end of a step sends what its formula says, and allocates nothing", "[strategy][mesh]") {
  auto const ended = [](auto const& rule, auto reduce) {
    auto live      = Live{MeshStrategy{Grid{Cpu::logical(4)}}, reduce, Counting<LocalTransport>{}};
    auto copies    = live.create(surface<Tensor>(rule), 7);
    auto sent      = PerReplica<std::size_t>(4);
    auto allocated = PerReplica<int>(4);
    for (auto& shares : live.distribute(points()))
      live.run(
          [&](auto& replica, auto& copy, auto& batch, std::size_t& bytes, int& made) {
            auto result       = replica.value_and_gradient(copy, batch);
            auto const before = std::pair{replica.sent().bytes, test::allocations};
            live.update(replica, copy, result.gradients);
            bytes = replica.sent().bytes - before.first;
            made  = test::allocations - before.second;
          },
          copies, shares, sent, allocated);
    for (std::size_t i = 1; i < 4; ++i) CHECK(sent[i] == sent[0]);
    return std::pair{sent[0], *std::ranges::max_element(allocated)};
  };
  auto const model    = surface<Tensor>(plain);
  auto const gradient = PlanView{model.plan}.bytes_per_step();  // a ring of 2 sends 2 (P-1)/P of it
  CHECK(ended(plain, RingAllReduce{}) == std::pair{gradient + 4 * sizeof(double), 0});
  CHECK(ended(clipped, RingAllReduce{}) == std::pair{gradient + 5 * sizeof(double), 0});
  auto const lines = 7 * 32 / 16 + 32 * 10;  // of whole lines, and numbers of others
  CHECK(ended(clipped, Reproducible<8>{}).first - ended(plain, Reproducible<8>{}).first == lines * sizeof(double));
}
