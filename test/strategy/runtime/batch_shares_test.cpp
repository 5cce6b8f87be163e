// SPDX-License-Identifier: Apache-2.0
#include "test/support/reference.hpp"

#include <chorale/strategy/runtime/distributed_batches.hpp>
#include <chorale/strategy/sharded.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

using namespace chorale;

TEST_CASE("shares cover a batch in proportion to their weights", "[strategy][shares]") {
  auto const weights = GENERATE(std::vector<double>{1, 1, 1}, std::vector<double>{3, 1},
                                std::vector<double>{0.2, 5, 0, 1.7}, std::vector<double>{1e-9, 1e9});
  auto const shares  = BatchShares{weights};
  auto const ranks   = static_cast<int>(weights.size());
  auto sum           = 0.0;
  for (auto const w : weights) sum += w;
  for (std::size_t rows = 0; rows < 200; ++rows) {
    auto end = std::size_t{0};
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto const part = shares.of(rows, rank, ranks);
      CHECK(part.begin == end);
      auto const exact = static_cast<double>(rows) * weights[static_cast<std::size_t>(rank)] / sum;
      CHECK(std::abs(static_cast<double>(part.size()) - exact) <= 1.0);
      end = part.end;
    }
    CHECK(end == rows);
  }
}

TEST_CASE("weights that cannot be added up are no shares: speeds come from other ranks", "[strategy][shares]") {
  constexpr auto most = std::numeric_limits<double>::max();
  CHECK_THROWS_WITH((BatchShares{{most, most}}), Catch::Contains("shares of 2 replicas have weights of inf in all"));
  CHECK_THROWS_AS(BatchShares::by({{most, 1}, {most, 0.5}}), BadArgument);
}

TEST_CASE("the fast get more, the very slow a tenth of an even share", "[strategy][shares]") {
  auto const shares = BatchShares::by({{300, 1}, {100, 1}});
  CHECK(shares.of(64, 0, 2) == Range{0, 48});
  CHECK(shares.of(64, 1, 2) == Range{48, 64});
  CHECK(BatchShares::by({{100, 1}, {0, 0}}).of(1050, 1, 2).size() == 50);
  CHECK(BatchShares::by({{0, 0}, {0, 0}}).even());
  CHECK_THROWS_AS((BatchShares{{1, -1}}), BadArgument);
  CHECK_THROWS_AS((BatchShares{{0, 0}}), BadArgument);
  CHECK_THROWS_AS((BatchShares{{std::numeric_limits<double>::quiet_NaN(), 1}}), BadArgument);
  CHECK_THROWS_WITH((BatchShares{{1, 2, 3}}.of(10, 0, 2)), Catch::Contains("3 shares, but 2"));
}

TEST_CASE("unequal shares give what one replica gives, and scores of each row once", "[strategy][shares]") {
  auto const data = tiny::uneven();
  auto const weights =
      GENERATE(std::vector<double>{1, 5, 2}, std::vector<double>{0, 1, 0}, std::vector<double>{9, 0, 1});
  auto trainer = tiny::learner_under(MirroredStrategy{Cpu::logical(3)});
  trainer.live().set_shares(BatchShares{weights});
  auto const history = trainer.fit(data, tiny::quietly);
  CHECK(history[0].scores.rows() == 279);
  CHECK(tiny::difference(tiny::values_of(trainer), tiny::reference(data)) < 1e-5);
  CHECK(trainer.evaluate(data).rows() == 279);
  CHECK(trainer.predict(data).rows() == 279);
}

TEST_CASE("rows are dealt out by speed after the first epoch, the result unchanged", "[strategy][shares]") {
  auto const data = tiny::uneven();
  auto trainer    = tiny::learner_under(MirroredStrategy{Cpu::logical(3)});
  auto even       = tiny::learner_under(MirroredStrategy{Cpu::logical(3)});
  trainer.fit(data, {.epochs = 3, .show = Show::nothing, .deal = Deal::by_speed});
  even.fit(data, {.epochs = 3, .show = Show::nothing});
  CHECK(!trainer.live().shares().even());
  CHECK(tiny::difference(tiny::values_of(trainer), tiny::values_of(even)) < 1e-5);
  auto sharded = tiny::learner_under(ShardedStrategy<Zero::one>{Cpu::logical(2)}, Reproducible<8>{});
  CHECK_THROWS_WITH(sharded.fit(data, {.show = Show::nothing, .deal = Deal::by_speed}),
                    Catch::Contains("whole copies of all variables"));
}

TEST_CASE("under Reproducible logical shards move whole, and the bits stay", "[strategy][shares][reproducible]") {
  auto const data  = tiny::uneven();
  auto const learn = [&](int replicas, std::vector<double> const& weights) {
    auto trainer = tiny::learner_under(MirroredStrategy{Cpu::logical(replicas)}, Reproducible<8>{});
    if (!weights.empty()) trainer.live().set_shares(BatchShares{weights});
    auto rows    = std::vector<std::size_t>{};  // of each replica in the first batch
    auto batches = trainer.live().distribute(data);
    for (auto const& share : *batches.next()) rows.push_back(share.rows);
    auto const history = trainer.fit(data, tiny::quietly);
    CHECK(history[0].scores.rows() == 279);
    auto const hashes = trainer.hashes();
    for (auto const hash : hashes) CHECK(hash == hashes[0]);
    return std::pair{hashes[0], rows};
  };
  auto const [alone, all] = learn(1, {});
  auto const [even, half] = learn(2, {});
  CHECK(even == alone);
  auto const [three, unequal] = learn(2, {3, 1});  // 6 shards and 2
  CHECK(three == alone);
  CHECK(unequal[0] == share(all[0], 6, 8).begin);
  CHECK(unequal[0] + unequal[1] == all[0]);
  CHECK(learn(3, {1, 5, 2}).first == alone);
  CHECK(learn(3, {0, 1, 0}).first == alone);  // two replicas without a shard
  CHECK(learn(4, {9, 0, 1, 1}).first == alone);

  auto trainer = tiny::learner_under(MirroredStrategy{Cpu::logical(3)}, Reproducible<8>{});
  auto evenly  = tiny::learner_under(MirroredStrategy{Cpu::logical(3)}, Reproducible<8>{});
  trainer.fit(data, {.epochs = 3, .show = Show::nothing, .deal = Deal::by_speed});
  evenly.fit(data, {.epochs = 3, .show = Show::nothing});
  CHECK(!trainer.live().shares().even());
  CHECK(trainer.hashes() == evenly.hashes());
}
