// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/compressed.hpp>
#include <chorale/reduce/halving_doubling.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <cmath>

using namespace chorale;
using namespace chorale::test;

static_assert(ReduceAlgorithm<Compressed<bf16>, LocalTransport> && ResumableReduce<Compressed<bf16>, LocalEndpoint>);

TEMPLATE_TEST_CASE("16 bits travel: exactly half the bytes, the same bits on every rank", "[reduce][wire]",
                   Compressed<bf16>, Compressed<fp16>, (Compressed<bf16, RingAllReduce>),
                   (Compressed<bf16, HalvingDoublingAllReduce>)) {
  auto const ranks = GENERATE(1, 2, 3, 4, 7, 8);
  auto const n     = std::size_t{1'344 * 2};
  auto const ended = on_ranks<Counting<LocalTransport>>(ranks, n, [](auto& at, auto& x) {
    for (auto& value : x) value = std::ldexp(value, -8);  // fp16 ends at 65504
    TestType{}.all_reduce(at, x, Op::sum);
  });
  auto busiest     = std::size_t{0};
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, ended[0].x));
    busiest = std::max(busiest, rank.cost.bytes);
  }
  CHECK(busiest == TestType::cost(ranks, n * sizeof(float)).bytes);
}

TEMPLATE_TEST_CASE("each addend is rounded once and the sum once, whatever the number of ranks", "[reduce][wire]", bf16,
                   fp16) {
  auto const ranks = GENERATE(2, 3, 8, 16);
  auto const n     = std::size_t{1'001};
  auto const value = [](Rank rank, std::size_t i) {
    return 1.0F + 0.37F * Random{3, static_cast<std::uint64_t>(rank)}.uniform(i);
  };
  auto const ended = on_ranks<LocalTransport>(ranks, n, [&](auto& at, auto& x) {
    for (std::size_t i = 0; i < n; ++i) x[i] = value(at.rank(), i);
    Compressed<TestType>{}.all_reduce(at, x, Op::sum);
  });
  for (std::size_t i = 0; i < n; ++i) {
    auto owner = 0;
    while (share(n, owner, ranks).end <= i) ++owner;
    auto sum = value(owner, i);  // the owner's own is not sent
    for (int k = 1; k < ranks; ++k)
      sum += static_cast<float>(static_cast<TestType>(value((owner + ranks - k) % ranks, i)));
    REQUIRE(ended[0].x[i] == static_cast<float>(static_cast<TestType>(sum)));
  }
}

TEST_CASE("many small addends are not lost beside a large sum, as they would be in bf16", "[reduce][wire]") {
  auto const ended = on_ranks<LocalTransport>(16, 16, [](auto& at, auto& x) {
    for (auto& value : x) value = at.rank() == 0 ? 256.0F : 0.5F;  // bf16 has steps of 2 from 256 on
    Compressed<bf16>{}.all_reduce(at, x, Op::sum);
  });
  for (auto const value : ended[0].x) CHECK(value == 264.0F);  // 263.5 rounded; added up in bf16 it stays 256
}
