// SPDX-License-Identifier: Apache-2.0
//
// ShardedStrategy against one replica with the whole batch, ranks as threads.
#include "test/strategy/sharded.hpp"

#include "test/support/count_allocations.hpp"

#include <chorale/strategy/sharded.hpp>
#include <chorale/transport/counting.hpp>

#include <catch2/catch.hpp>

#include <limits>
#include <numeric>

using namespace chorale;
using namespace sharded_test;

namespace {

auto sharded(int n) { return ShardedStrategy<Zero::one>{Cpu::logical(n)}; }

/// Odd with a gradient that is finite on every replica, in a variable that the last shards have, and whose sum is not.
struct TooLarge {
  template <class Step, class B> float operator()(Step& step, B const& batch) const {
    if (batch.rows != 0) step.gradient(0)[100] += 3e38F;
    return static_cast<float>(batch.rows);
  }
};

struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
struct BagOfWords : nn::Graph<Words> {
  nn::EmbeddingBag<20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto too_large() {
  return custom_model<BasicBatch<float, float>>({{"large", {7, 15}}, {"first", {40}}}, TooLarge{},
                                                optim::Adam{.global_clipnorm = 1});
}

}  // namespace

TEST_CASE("shards of any shapes over any world learn the bits of one replica, clipped or not", "[strategy][sharded]") {
  auto const plain   = odd(optim::Adam{.learning_rate = 0.01F});
  auto const clipped = odd(optim::Adam{.learning_rate = 0.01F, .global_clipnorm = 0.5F});
  auto const one = on_one(plain, Reproducible<8>{}), one_clipped = on_one(clipped, Reproducible<8>{});
  REQUIRE(one != one_clipped);  // so it does clip
  for (int const world : {1, 2, 3, 4, 5, 7}) {
    CAPTURE(world);
    CHECK(learned(plain, sharded(world), Reproducible<8>{}, LocalTransport{}) == one);
    CHECK(learned(clipped, sharded(world), Reproducible<8>{}, LocalTransport{}) == one_clipped);
    CHECK(apart(learned(clipped, sharded(world), RingAllReduce{}, LocalTransport{}), one_clipped) < 1e-5);
    CHECK(apart(learned(clipped, sharded(world), DirectAllReduce{}, LocalTransport{}), one_clipped) < 1e-5);
  }
}

TEST_CASE("moving averages, dropout and frozen variables are those of one replica", "[strategy][sharded]") {
  auto const rule = optim::AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F, .global_clipnorm = 0.2F};
  auto const all  = normed(rule);
  auto const groups =
      std::vector<optim::ParameterGroup>{optim::frozen("dense/kernel"), {.names = "dense_1*", .learning_rate = 2}};
  auto const frozen = normed(optim::Grouped{rule, groups});
  auto const one = on_one(all, Reproducible<8>{}), one_frozen = on_one(frozen, Reproducible<8>{});
  REQUIRE(one != one_frozen);
  for (int const world : {2, 3, 7}) {
    CAPTURE(world);
    CHECK(learned(all, sharded(world), Reproducible<8>{}, LocalTransport{}) == one);
    CHECK(learned(frozen, sharded(world), Reproducible<8>{}, LocalTransport{}) == one_frozen);
  }
}

TEST_CASE("a scaled loss is that of one replica, with its skipped steps", "[strategy][sharded]") {
  auto const rule  = optim::LossScaled{optim::Adam{.learning_rate = 0.01F}, optim::LossScale::largest, 3};
  auto const model = nn::compile<nn::WithProducts<tiny::Small, Products::fp16>>(loss::SparseCrossEntropy{}, rule);
  auto const train = [&](auto strategy) {
    auto trainer = Trainer{model, strategy, Reproducible<8>{}, LocalTransport{}, 7};
    auto const h = trainer.fit(tiny::uneven(), tiny::quietly);
    return std::tuple{tiny::values_of(trainer), h[0].skipped, trainer.copies()[0].optimizer.loss_scale.value};
  };
  auto const one = train(OneDeviceStrategy{Cpu::logical(1)[0]});
  for (int const world : {2, 3, 5}) CHECK(train(sharded(world)) == one);
}

TEST_CASE("accumulated gradients are one update", "[strategy][sharded]") {
  auto const model = odd(optim::SGD{.learning_rate = 0.01F, .momentum = 0.9F});
  auto const rows  = tiny::batch<float>(72, 16, 3);
  auto const small = tiny::Batches<float>{rows, {8, 5, 8, 3, 8, 8, 8, 8, 8, 8}};  // in threes, and one is left
  auto const large = tiny::Batches<float>{rows, {21, 19, 24, 8}};
  auto one         = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 7};
  one.fit(large, tiny::quietly);
  for (int const world : {2, 5}) {
    auto many = Trainer{model, sharded(world), RingAllReduce{}, LocalTransport{}, 7};
    many.fit(small, {.show = Show::nothing, .accumulate = 3});
    CHECK(apart(tiny::values_of(many), tiny::values_of(one)) < 1e-5);
  }
}

TEST_CASE("a sum that is not finite changes no variable of any shard", "[strategy][sharded]") {
  auto const rows = tiny::Batches<float>{tiny::batch<float>(12, 16, 3), {6, 6}};
  for (int const world : {2, 3, 5}) {
    auto trainer      = Trainer{too_large(), sharded(world), RingAllReduce{}, LocalTransport{}, 7};
    auto const before = trainer.hashes();
    CHECK_THROWS_WITH(
        trainer.fit(rows, tiny::quietly),
        Catch::Contains("the gradient of large of step 0 is finite on every replica, but their sum is not"));
    CHECK(trainer.hashes() == before);
    auto const history = trainer.fit(rows, {.show = Show::nothing, .on_non_finite = NonFinite::skip});
    CHECK(history[0].skipped == 2);
    CHECK(trainer.hashes() == before);
  }
  auto bad      = batches();
  bad.rows.x[3] = std::numeric_limits<float>::quiet_NaN();  // a row of the first replica
  auto trainer  = Trainer{odd(optim::Adam{}), sharded(3), Reproducible<8>{}, LocalTransport{}, 7};
  CHECK_THROWS_AS(trainer.fit(bad, tiny::quietly), NumericFault);
}

TEST_CASE("a step sends what its formula says, and allocates nothing", "[strategy][sharded]") {
  auto const clips = GENERATE(false, true);
  auto const world = GENERATE(1, 2, 3, 4, 5, 7);
  auto const model = odd(optim::Adam{.global_clipnorm = clips ? 0.5F : 0.0F});
  auto live        = Live{sharded(world), RingAllReduce{}, Counting<LocalTransport>{}};
  auto copies      = live.create(model, 7);
  auto sent        = PerReplica<std::size_t>(copies.size());
  auto allocated   = PerReplica<int>(copies.size());
  auto const data  = batches();
  for (auto& share : live.distribute(data))
    live.run(
        [&](auto& replica, auto& copy, auto& batch, std::size_t& bytes, int& made) {
          auto const begin = replica.sent().bytes;
          auto result      = replica.value_and_gradient_ahead(copy, batch);
          auto const first = test::allocations;
          live.update(replica, copy, result.gradients);
          made  = test::allocations - first;
          bytes = replica.sent().bytes - begin;
        },
        copies, share, sent, allocated);

  auto const body = PlanView{model.plan}.body().size();
  auto const each = clips ? 1 + SquareTree::most_nodes(SquareTree::lines(body)) : std::size_t{1};
  auto const size = [&](int rank) { return placement::Shard{rank % world, world}.of(body).size(); };
  auto slots      = std::size_t{0};
  auto halves     = std::size_t{0};  // bytes of gradients and variables
  for (int rank = 0; rank < world; ++rank) {
    auto const i       = static_cast<std::size_t>(rank);
    auto const scatter = world == 1 ? 0 : (body - size(rank)) * sizeof(float);
    auto const gather  = world == 1 ? 0 : (body - size(rank + 1)) * sizeof(float);
    auto const ends =
        traffic<RecursiveDoublingAllReduce>(rank, world, plan::header + plan::trailer, sizeof(float)).bytes;
    auto const report = traffic<RecursiveDoublingAllReduce>(rank, world, each * copies.size(), sizeof(double)).bytes;
    CHECK(sent[i] == scatter + gather + ends + report);
    CHECK(allocated[i] == 0);
    CHECK(copies[i].optimizer.slots().size_bytes() == 8 * size(rank));  // of Adam, 2 floats for each element
    slots += copies[i].optimizer.slots().size_bytes();
    halves += scatter + gather;
  }
  CHECK(slots == 8 * body);
  CHECK(halves == 2 * body * sizeof(float) * (copies.size() - 1));  // 2 Psi (P-1)/P for each of P ranks
}

TEST_CASE("gradients that are rows of a table are refused", "[strategy][sharded]") {
  auto const model = nn::compile<BagOfWords>(loss::MeanSquaredError{}, optim::Adam{});
  auto live        = Live{sharded(2), RingAllReduce{}, LocalTransport{}};
  CHECK_THROWS_WITH(live.create(model), Catch::Contains("the gradient of embedding_bag/embeddings is rows"));
}
