// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/reproducible.hpp>
#include <chorale/reduce/tree.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <cmath>

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr int L = 64;

/// What a rank's shards come to, when shard s has values_of(s).
shard_tree::Sums shards_of(Rank rank, int ranks, std::size_t n) {
  auto sums       = shard_tree::Sums{};
  auto const mine = share(L, rank, ranks);
  sums.resize(n);
  for (auto s = static_cast<int>(mine.begin); s < static_cast<int>(mine.end); ++s) {
    auto const values = values_of(s, n);
    auto sum          = sums.memory();
    std::copy(values.begin(), values.end(), sum.get());
    sums.add(L + s, std::move(sum));
  }
  return sums;
}

/// The same by definition: level by level, left child and right child.
std::vector<float> along_the_tree(std::size_t n) {
  auto level = std::vector<std::vector<float>>{};
  for (int s = 0; s < L; ++s) level.push_back(values_of(s, n));
  for (; level.size() > 1; level.resize(level.size() / 2))
    for (std::size_t k = 0; k < level.size() / 2; ++k)
      for (std::size_t i = 0; i < n; ++i) level[k][i] = level[2 * k][i] + level[2 * k + 1][i];
  return level[0];
}

template <class R, class T = LocalTransport>
std::vector<RankResult> reduced(int ranks, std::size_t n, std::size_t bucket_bytes) {
  return on_ranks<T>(ranks, n, [&](auto& at, auto& x) {
    using Reduce = Reproducible<L, R>;
    Reduce{bucket_bytes}.all_reduce(at, Reduce::traffic_of(ranks), shards_of(at.rank(), ranks, n), x, Tag{3});
  });
}

}  // namespace

TEMPLATE_TEST_CASE("the bits are the tree's, for any number of ranks, any buckets, any algorithm",
                   "[reduce][reproducible]", RingAllReduce, DoubleTreeAllReduce, HalvingDoublingAllReduce) {
  auto const ranks  = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const bucket = GENERATE(as<std::size_t>{}, 400, 4096, std::size_t{1} << 20);
  auto const wanted = along_the_tree(1'009);
  for (auto const& rank : reduced<TestType>(ranks, 1'009, bucket)) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, wanted));
  }
}

TEMPLATE_TEST_CASE("Reproducible sends what its cost says", "[reduce][reproducible]", RingAllReduce,
                   HalvingDoublingAllReduce) {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = std::size_t{8 * 3 * 5 * 7 * 2};
  auto const cost  = Reproducible<L, TestType>::cost(ranks, n * sizeof(float));
  auto all = std::size_t{0}, busiest = std::size_t{0};
  for (auto const& rank : reduced<TestType, Counting<LocalTransport>>(ranks, n, std::size_t{1} << 20)) {
    busiest = std::max(busiest, rank.cost.bytes);
    all += rank.cost.bytes;
  }
  auto plain = std::size_t{0};
  for (Rank rank = 0; rank < ranks; ++rank) plain += traffic<TestType>(rank, ranks, n, sizeof(float)).bytes;
  CHECK(busiest == cost.bytes);
  if (ranks > 1)
    CHECK(static_cast<double>(all) / static_cast<double>(plain) ==
          Approx(Reproducible<L, TestType>::traffic_factor(ranks)).epsilon(0.02));
}

TEST_CASE("the fewest nodes that have just the shards of a rank", "[reduce][reproducible]") {
  using namespace shard_tree;
  CHECK(nodes_of(of_rank(0, 1, 64), 64) == std::vector<int>{1});
  CHECK(nodes_of(of_rank(1, 4, 64), 64) == std::vector<int>{5});
  CHECK(nodes_of(0b1110, 4) == std::vector<int>{5, 3});
  CHECK(nodes_of(0, 4).empty());
  for (int const ranks : {1, 3, 7, 64})
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto held = Shards{0};
      for (int const node : nodes_of(of_rank(rank, ranks, 64), 64)) held |= below(node, 64);
      CHECK(held == of_rank(rank, ranks, 64));
    }
}

TEST_CASE("one vector of each rank is added up too, and only added up", "[reduce][reproducible]") {
  auto const ended = on_ranks<LocalTransport>(
      3, 100, [](auto& at, auto& x) { Reproducible<4, RingAllReduce>{}.all_reduce(at, x, Op::sum); });
  auto const wanted = serial_reference(3, 100, Op::sum, [](std::size_t) { return 0; });
  for (auto const& rank : ended)
    for (std::size_t i = 0; i < 100; ++i) CHECK(rank.x[i] == Approx(wanted[i]).margin(1e-3));
  auto const refused = on_ranks<LocalTransport>(
      2, 4, [](auto& at, auto& x) { Reproducible<4, RingAllReduce>{}.all_reduce(at, x, Op::max); });
  CHECK_THAT(refused[0].error, Catch::Contains("Reproducible adds up; max"));
  auto const too_many = on_ranks<LocalTransport>(
      3, 4, [](auto& at, auto& x) { Reproducible<2, RingAllReduce>{}.all_reduce(at, x, Op::sum); });
  CHECK_THAT(too_many[0].error, Catch::Contains("2 logical shards, too few for 3 ranks"));
}
