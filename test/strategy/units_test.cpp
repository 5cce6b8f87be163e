// SPDX-License-Identifier: Apache-2.0
//
// ShardedStrategy<Zero::two> and <Zero::three> against one replica with the whole batch, ranks as threads.
#include "test/strategy/units.hpp"

#include "test/support/count_allocations.hpp"
#include "test/support/folder.hpp"

#include <chorale/advice/network_memory.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/trainer/retarget.hpp>
#include <chorale/transport/counting.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <limits>
#include <numeric>

using namespace chorale;
using namespace units_test;
using sharded_test::apart;
using chorale::test::Folder;

namespace {

template <Zero zero> auto sharded(int n) { return ShardedStrategy<zero>{Cpu::logical(n)}; }
auto alone() { return OneDeviceStrategy{Cpu::logical(1)[0]}; }

struct Block {
  nn::Dense<64> wide;
  nn::Dense<32> narrow;

  constexpr auto operator()(auto x) const { return x + narrow(nn::tanh(wide(x))); }
};
struct Wide : Field<float, 32> {};

/// 24 equal blocks, of which a backward computes some again.
template <class B> struct Blocks : nn::Graph<Wide> {
  std::array<B, 24> blocks;

  constexpr auto operator()(auto x) const {
    for (auto const& block : blocks) x = block(x);
    return nn::outputs<Next>(x);
  }
};
using Equal = Blocks<Block>;

template <class Net> auto blocks() { return nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}); }

/// Batches of 8 rows of blocks.
struct WideBatches {
  using element = Rows<Wide, Next>;

  std::vector<float> x  = std::vector<float>(8 * 32);
  std::vector<int> next = std::vector<int>(8);
  std::size_t batches   = 3;

  WideBatches() {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random{9, 0}.uniform(i, -1, 1);
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = static_cast<int>(i * 3);
  }
  struct Stream {
    WideBatches const* from;
    std::size_t i = 0;

    bool next(element& batch) {
      batch = element{Span<float const>{from->x}, Span<int const>{from->next}};
      return i++ < from->batches;
    }
  };
  Stream stream(std::size_t /*epoch*/) const { return {this}; }
  std::optional<std::size_t> size() const { return batches; }
};

/// Makes three steps. Tells, of the last one, the bytes that each replica has sent, and how often it allocated.
void make_steps(auto& live, auto& copies, PerReplica<std::size_t>& sent, PerReplica<int>& allocated) {
  auto const data = WideBatches{};
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
}

template <Zero zero> void learns_as_one(auto const& model, auto const& data, std::initializer_list<int> worlds) {
  auto const one = on_one(model, Reproducible<8>{}, data);
  for (int const world : worlds) {
    CAPTURE(world);
    CHECK((learned(model, sharded<zero>(world), Reproducible<8>{}, LocalTransport{}, data) == one));
  }
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("units of any shapes over any world learn the bits of one replica", "[strategy][units]",
                       ((Zero zero), zero), Zero::two, Zero::three) {
  auto const data    = OddBatches{};
  auto const clipped = odd_net(optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F});
  auto const one     = on_one(clipped, Reproducible<8>{}, data);
  auto const other   = on_one(odd_net(optim::Adam{.learning_rate = 0.01F}), Reproducible<8>{}, data);
  REQUIRE(apart(one, other) > 1e-4);  // so it does clip
  learns_as_one<zero>(clipped, data, {1, 2, 3, 4, 5, 7});
  for (int const world : {1, 2, 5}) {
    CHECK(apart(learned(clipped, sharded<zero>(world), RingAllReduce{}, LocalTransport{}, data), one) < 1e-5);
    CHECK(apart(learned(clipped, sharded<zero>(world), DirectAllReduce{}, LocalTransport{}, data), one) < 1e-5);
  }
}

TEMPLATE_TEST_CASE_SIG("units with moving averages, dropout, frozen variables and recomputed blocks learn the same",
                       "[strategy][units]", ((Zero zero), zero), Zero::two, Zero::three) {
  auto const rule = optim::AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F, .global_clipnorm = 0.2F};
  auto const groups =
      std::vector<optim::ParameterGroup>{optim::frozen("dense/kernel"), {.names = "dense_1*", .learning_rate = 2}};
  learns_as_one<zero>(sharded_test::normed(optim::Grouped{rule, groups}), sharded_test::batches(), {1, 2, 3, 7});
  learns_as_one<zero>(blocks<Blocks<nn::Recompute<Block>>>(), WideBatches{}, {2, 3});
}

TEMPLATE_TEST_CASE_SIG("a scaled loss and accumulated gradients are those of one replica, by units",
                       "[strategy][units]", ((Zero zero), zero), Zero::two, Zero::three) {
  auto const rule  = optim::LossScaled{optim::Adam{.learning_rate = 0.01F}, optim::LossScale::largest, 3};
  auto const model = nn::compile<nn::WithProducts<tiny::Small, Products::fp16>>(loss::SparseCrossEntropy{}, rule);
  auto const train = [&](auto strategy) {
    auto trainer = Trainer{model, strategy, Reproducible<8>{}, LocalTransport{}, 7};
    auto const h = trainer.fit(tiny::uneven(), tiny::quietly);
    return std::tuple{tiny::values_of(trainer), h[0].skipped, trainer.copies()[0].optimizer.loss_scale.value};
  };
  auto const one = train(alone());
  for (int const world : {2, 3}) CHECK((train(sharded<zero>(world)) == one));

  auto const sums  = sharded_test::normed(optim::SGD{.learning_rate = 0.01F, .momentum = 0.9F});
  auto const rows  = tiny::batch<float>(72, 16, 3);
  auto const small = tiny::Batches<float>{rows, {8, 5, 8, 3, 8, 8, 8, 8, 8, 8}};  // in threes, and one is left
  auto mirrored    = Trainer{sums, MirroredStrategy{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}, 7};
  auto many        = Trainer{sums, sharded<zero>(2), RingAllReduce{}, LocalTransport{}, 7};
  mirrored.fit(small, {.show = Show::nothing, .accumulate = 3});
  many.fit(small, {.show = Show::nothing, .accumulate = 3});
  CHECK(apart(tiny::values_of(many), tiny::values_of(mirrored)) < 1e-5);
}

TEMPLATE_TEST_CASE_SIG("units evaluate, predict, save and load as one replica does, and refuse a NaN",
                       "[strategy][units]", ((Zero zero), zero), Zero::two, Zero::three) {
  auto const model = odd_net(optim::Adam{.learning_rate = 0.01F});
  auto const data  = OddBatches{};
  auto one         = Trainer{model, alone(), Reproducible<8>{}, LocalTransport{}, 7};
  auto many        = Trainer{model, sharded<zero>(5), Reproducible<8>{}, LocalTransport{}, 7};
  one.fit(data, tiny::quietly);
  many.fit(data, {.show = Show::nothing}, validate_on(data));
  CHECK(many.evaluate(data).loss() == Approx(one.evaluate(data).loss()).epsilon(1e-6));  // shares with no rows, too
  auto const predicted = one.predict(data).values;
  CHECK(apart(many.predict(data).values, predicted) < 1e-5);  // shares have other numbers of rows
  auto const folder = Folder{};
  many.save(folder.path / "all.safetensors");
  auto loaded = Trainer{model, sharded<zero>(3), Reproducible<8>{}, LocalTransport{}, 8};
  REQUIRE((tiny::values_of(loaded) != tiny::values_of(one)));
  loaded.load(folder.path / "all.safetensors");
  CHECK((tiny::values_of(loaded) == tiny::values_of(one)));
  CHECK(apart(loaded.predict(data).values, predicted) < 1e-5);
  auto const all = std::vector<float>(one.variables().values.begin(), one.variables().values.end());
  many.set_variables(std::vector<float>(all.size()));
  CHECK(apart(tiny::values_of(many), std::vector<float>(tiny::values_of(one).size())) == 0);
  many.set_variables(all);
  CHECK(apart(many.predict(data).values, predicted) < 1e-5);

  auto bad     = data;
  bad.x[3]     = std::numeric_limits<float>::quiet_NaN();  // a row of the first replica
  auto trainer = Trainer{model, sharded<zero>(3), RingAllReduce{}, LocalTransport{}, 7};
  auto before  = tiny::values_of(trainer);
  CHECK_THROWS_AS(trainer.fit(bad, tiny::quietly), NumericFault);
  CHECK((tiny::values_of(trainer) == before));
}

TEST_CASE("a checkpoint of units is resumed by another number of ranks and other strategies", "[strategy][units]") {
  auto const data = OddBatches{};
  auto const fit  = [&](auto strategy, Folder const& folder, int epochs) {
    auto trainer = Trainer{odd_net(optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F}), strategy,
                           Reproducible<8>{}, LocalTransport{}, 7};
    trainer.fit(data, {.epochs = epochs, .show = Show::nothing, .checkpoints = {.folder = folder.path}});
    return tiny::values_of(trainer);
  };
  auto const undisturbed = fit(alone(), Folder{}, 4);
  auto const folder      = Folder{};
  fit(sharded<Zero::three>(3), folder, 1);
  fit(sharded<Zero::two>(2), folder, 2);
  fit(MirroredStrategy{Cpu::logical(2)}, folder, 3);
  CHECK((fit(sharded<Zero::three>(4), folder, 4) == undisturbed));
}

TEST_CASE("training goes on from units under other strategies, and back, without a file", "[strategy][units]") {
  auto const data  = OddBatches{};
  auto const model = odd_net(optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.05F});
  auto const until = [&](auto& trainer, int epochs) {
    trainer.fit(data, {.epochs = epochs, .initial_epoch = epochs - 1, .show = Show::nothing});
  };
  auto const by = Reproducible<8>{};
  auto one      = Trainer{model, alone(), by, LocalTransport{}, 7};
  auto three    = Trainer{model, sharded<Zero::three>(3), by, LocalTransport{}, 7};
  one.fit(data, {.epochs = 4, .show = Show::nothing});
  until(three, 1);
  auto two = retarget(std::move(three), sharded<Zero::two>(2), by, LocalTransport{});
  until(two, 2);
  auto mirrored = retarget(std::move(two), MirroredStrategy{Cpu::logical(2)}, by, LocalTransport{});
  until(mirrored, 3);
  auto again = retarget(std::move(mirrored), sharded<Zero::three>(4), by, LocalTransport{});
  until(again, 4);
  CHECK((tiny::values_of(again) == tiny::values_of(one)));
}

TEMPLATE_TEST_CASE_SIG("memory is as planned, a step sends what its formula says and allocates nothing",
                       "[strategy][units]", ((Zero zero), zero), Zero::two, Zero::three) {
  constexpr auto& units = nn::graph::UnitsOf<Equal, Cpu>::view;
  static_assert(units.turns == 48 && !units.keeps);  // a unit for each layer
  constexpr std::size_t wide = 32 * 64 + 64, narrow = 64 * 32 + 32, all = 24 * (wide + narrow);
  static_assert(PlanView{nn::plan_of<Equal>}.body().size() == all);
  auto const model = blocks<Equal>();
  auto const world = GENERATE(1, 2, 4, 7);
  auto live        = Live{sharded<zero>(world), RingAllReduce{}, Counting<LocalTransport>{}};
  auto copies      = live.create(model, 7);
  auto sent        = PerReplica<std::size_t>(copies.size());
  auto allocated   = PerReplica<int>(copies.size());
  make_steps(live, copies, sent, allocated);
  auto mirrored   = Live{MirroredStrategy{Cpu::logical(1)}, RingAllReduce{}, Counting<LocalTransport>{}};
  auto whole      = mirrored.create(model, 7);
  auto none       = PerReplica<std::size_t>(1);
  auto by_kernels = PerReplica<int>(1);  // of oneDNN's calls
  make_steps(mirrored, whole, none, by_kernels);

  auto units_sent = std::size_t{0};
  for (int rank = 0; rank < world; ++rank) {
    auto const i    = static_cast<std::size_t>(rank);
    auto const of   = [&](std::size_t unit) { return placement::Shard{rank, world}.of(unit).size(); };
    auto const held = 24 * (of(wide) + of(narrow));
    auto const ends =
        traffic<RecursiveDoublingAllReduce>(rank, world, plan::header + plan::trailer, sizeof(float)).bytes;
    auto const report = traffic<RecursiveDoublingAllReduce>(rank, world, copies.size(), sizeof(double)).bytes;
    units_sent += sent[i] - ends - report;
    CHECK(allocated[i] == by_kernels[0]);
    auto const variables = zero == Zero::two ? all + plan::header + plan::trailer : held + 2 * wide;
    auto const gradients = held + plan::header + plan::trailer + 2 * wide;
    CHECK(copies[i].arena_bytes() == (variables + gradients + 2 * held) * sizeof(float));
    auto const planned = memory_plan<Equal, ShardedStrategy<zero>, optim::Adam>(world, 2, rank);
    CHECK(copies[i].arena_bytes() == planned.variables + planned.gathered + planned.gradients + planned.slots);
    CHECK(memory_plan<ShardedStrategy<zero>>(model, RingAllReduce{}, Cpu::logical(1)[0], 2, {rank, world}).gradients ==
          planned.gradients);
    if (zero == Zero::three && world == 4)
      CHECK(static_cast<double>(copies[i].arena_bytes()) <=
            0.30 * static_cast<double>(PlanView{model.plan}.arena_bytes(2)));
  }
  auto const again = zero == Zero::two ? 0 : all - wide - narrow;                // two are still there
  CHECK(units_sent == (2 * all + again) * sizeof(float) * (copies.size() - 1));  // 3 Psi (P-1), or 2
}
