// SPDX-License-Identifier: Apache-2.0
// What every ReduceAlgorithm promises about its numbers and its messages.
#include "test/support/cases.hpp"

#include <chorale/reduce/auto.hpp>
#include <chorale/reduce/schedule.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

using namespace chorale;
using namespace chorale::test;

TEMPLATE_LIST_TEST_CASE("all_reduce leaves the sum in its documented order, the same bits on every rank",
                        "[reduce][contract]", Cases) {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 5, 1'344, 10'007);  // none, fewer than ranks, odd, .., a prime
  auto const ended = on_ranks<typename TestType::transport>(
      ranks, n, [](auto& at, auto& x) { typename TestType::reduce{}.all_reduce(at, x, Op::sum); });
  auto const expected = reference<typename TestType::reduce>(ranks, n, Op::sum);
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, expected));
  }
}

TEMPLATE_LIST_TEST_CASE("a large x travels in many messages, in the same order", "[reduce][contract]", Cases) {
  constexpr int ranks     = 4;
  constexpr std::size_t n = 1'000'003;  // a prime; 4 MB
  auto const ended        = on_ranks<typename TestType::transport>(
      ranks, n, [](auto& at, auto& x) { typename TestType::reduce{}.all_reduce(at, x, Op::sum); });
  auto const expected = reference<typename TestType::reduce>(ranks, n, Op::sum);
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(same_bits(rank.x, expected));
  }
}

TEMPLATE_LIST_TEST_CASE("every rank sends exactly what its schedule says", "[reduce][contract]", Cases) {
  using reduce     = typename TestType::reduce;
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 5, 10'007, 200'003);  // the last one in several lanes
  auto const ended = on_ranks<Counting<typename TestType::transport>>(
      ranks, n, [](auto& at, auto& x) { reduce{}.all_reduce(at, x, Op::sum); });
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const& counted = ended[static_cast<std::size_t>(rank)].cost;  // messages and bytes
    if constexpr (Schedule<reduce>) {
      auto const sent = traffic<reduce>(rank, ranks, n, sizeof(float));
      CHECK(counted == Cost{sent.messages, sent.bytes});
    } else {
      auto const part = share(n, rank, ranks);  // all have exposed, all have left
      CHECK(counted == Cost{ranks > 1 ? 2 : 0, 2 * static_cast<std::size_t>(ranks - 1) * part.size() * sizeof(float)});
    }
  }
}

TEMPLATE_LIST_TEST_CASE("the cost is that of the busiest rank", "[reduce][contract]", Cases) {
  using reduce     = typename TestType::reduce;
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 32, 63);
  auto const bytes = std::size_t{20'160} * sizeof(float);  // every count above divides 20160
  if constexpr (Schedule<reduce>) {
    auto most = std::size_t{0};
    for (Rank rank = 0; rank < ranks; ++rank)
      most = std::max(most, traffic<reduce>(rank, ranks, bytes / sizeof(float), sizeof(float)).bytes);
    CHECK(reduce::cost(ranks, bytes).bytes == most);
    CHECK(reduce::cost(ranks, bytes).steps == depth<reduce>(ranks));
  } else {
    auto const others = static_cast<std::size_t>(ranks - 1);
    CHECK(reduce::cost(ranks, bytes) == Cost{ranks > 1 ? 2 : 0, 2 * others * bytes / (others + 1)});
  }
}

TEMPLATE_LIST_TEST_CASE("min, max and product are reduced as sum is", "[reduce][contract]", Cases) {
  auto const op       = GENERATE(Op::min, Op::max, Op::product);
  auto const ranks    = GENERATE(2, 3, 7);
  auto const n        = std::size_t{1'001};
  auto const expected = reference<typename TestType::reduce>(ranks, n, op);
  auto const ended    = on_ranks<typename TestType::transport>(
      ranks, n, [&](auto& at, auto& x) { typename TestType::reduce{}.all_reduce(at, x, op); });
  for (auto const& rank : ended) CHECK(same_bits(rank.x, expected));
}

TEMPLATE_LIST_TEST_CASE("all ranks have the same bits, whatever bits their NaNs and the signs of their zeros have",
                        "[reduce][contract]", Cases) {
  auto const op    = GENERATE(Op::sum, Op::min, Op::max, Op::product);
  auto const ranks = GENERATE(2, 3, 4, 7);
  auto const ended = on_ranks<typename TestType::transport>(ranks, 101, [&](auto& at, auto& x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto const bits = 0x7FC0'0000U + static_cast<unsigned>(at.rank() + 1) * 0x8000'1000U;  // payload and sign
      x[i]            = i % 2 == 0 ? std::bit_cast<float>(bits) : at.rank() % 2 == 0 ? 0.0F : -0.0F;
    }
    typename TestType::reduce{}.all_reduce(at, x, op);
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(std::isnan(rank.x[0]));
    CHECK(rank.x[1] == 0.0F);
    CHECK(same_bits(rank.x, ended[0].x));
  }
}

TEMPLATE_LIST_TEST_CASE("a NaN on one rank is a NaN on all, under every operation", "[reduce][contract]", Cases) {
  auto const op    = GENERATE(Op::sum, Op::min, Op::max, Op::product);
  auto const ended = on_ranks<typename TestType::transport>(3, 6, [&](auto& at, auto& x) {
    x[static_cast<std::size_t>(2 * at.rank() + 1)] = std::nanf("");
    typename TestType::reduce{}.all_reduce(at, x, op);
  });
  for (auto const& rank : ended)
    for (std::size_t i = 0; i < 6; ++i) CHECK(std::isnan(rank.x[i]) == (i % 2 == 1));
}

// AutoAllReduce measures, and its choice may differ from run to run. So the algorithm that it chose is asked for, and the
// sum is held against that algorithm's order and messages.

namespace {

/// Calls f<R>() for the algorithm R of that name.
template <class F> auto with_algorithm(Algorithm algorithm, F&& f) {
  switch (algorithm) {
    case Algorithm::recursive_doubling: return f.template operator()<RecursiveDoublingAllReduce>();
    case Algorithm::halving_doubling: return f.template operator()<HalvingDoublingAllReduce>();
    case Algorithm::double_tree: return f.template operator()<DoubleTreeAllReduce>();
    case Algorithm::direct: return f.template operator()<DirectAllReduce>();
    default: return f.template operator()<RingAllReduce>();
  }
}

/// What a rank sends by that algorithm.
Cost planned_by(Algorithm algorithm, Rank rank, int ranks, std::size_t n) {
  return with_algorithm(algorithm, [&]<class R>() -> Cost {
    if constexpr (Schedule<R>) {
      auto const sent = traffic<R>(rank, ranks, n, sizeof(float));
      return {sent.messages, sent.bytes};
    } else {
      return {ranks > 1 ? 2 : 0,
              2 * static_cast<std::size_t>(ranks - 1) * share(n, rank, ranks).size() * sizeof(float)};
    }
  });
}

std::vector<float> reference_by(Algorithm algorithm, int ranks, std::size_t n, Op op) {
  return with_algorithm(algorithm, [&]<class R>() { return reference<R>(ranks, n, op); });
}

/// All-reduces by `reduce`; the messages and bytes of its measurements do not count.
std::vector<RankResult> reduced_by(AutoAllReduce const& reduce, int ranks, std::size_t n, Op op) {
  auto sent  = std::vector<Cost>(static_cast<std::size_t>(ranks));
  auto ended = on_ranks<Counting<LocalTransport>>(ranks, n, [&](auto& at, auto& x) {
    auto operation    = reduce.idle(at);
    auto const before = at.sent();
    operation.restart(at, x, op, Tag{});
    operation.finish();
    sent[static_cast<std::size_t>(at.rank())] = {at.sent().messages - before.messages, at.sent().bytes - before.bytes};
  });
  for (std::size_t rank = 0; rank < ended.size(); ++rank) ended[rank].cost = sent[rank];
  return ended;
}

}  // namespace

TEST_CASE("auto: each algorithm that it may choose has its own bits and sends what its schedule says",
          "[reduce][contract][auto]") {
  auto const forced   = GENERATE(Algorithm::recursive_doubling, Algorithm::halving_doubling, Algorithm::double_tree,
                                 Algorithm::ring, Algorithm::direct);
  auto const op       = GENERATE(Op::sum, Op::min, Op::max, Op::product);
  auto const ranks    = GENERATE(1, 2, 3, 4, 7, 8);
  auto const n        = GENERATE(as<std::size_t>{}, 0, 1, 5, 10'007);
  auto const expected = reference_by(forced, ranks, n, op);
  auto const ended    = reduced_by({.forced = forced}, ranks, n, op);
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const& one = ended[static_cast<std::size_t>(rank)];
    CHECK(one.error == "");
    CHECK(same_bits(one.x, expected));
    CHECK(one.cost == planned_by(forced, rank, ranks, n));
  }
}

TEST_CASE("auto: the sum is that of the algorithm in its table, for every size and number of ranks",
          "[reduce][contract][auto]") {
  auto const ranks  = GENERATE(1, 2, 3, 4);
  auto const reduce = AutoAllReduce{};
  auto tables       = std::vector<std::shared_ptr<AutoTable const>>(static_cast<std::size_t>(ranks));
  on_ranks<Counting<LocalTransport>>(ranks, 1, [&](auto& at, auto&) {
    tables[static_cast<std::size_t>(at.rank())] = reduce.table(at);  // measured here, once
  });
  for (std::size_t const n : {0U, 1U, 5U, 1'344U, 10'007U, 200'003U}) {
    auto const chosen   = tables[0]->choice(n * sizeof(float));
    auto const expected = reference_by(chosen, ranks, n, Op::sum);
    auto const ended    = reduced_by(reduce, ranks, n, Op::sum);
    INFO(ranks << " ranks, " << n << " values: " << name(chosen));
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto const& one = ended[static_cast<std::size_t>(rank)];
      CHECK(one.error == "");
      CHECK(same_bits(one.x, expected));
      CHECK(one.cost == planned_by(chosen, rank, ranks, n));
    }
  }
  CHECK(AutoAllReduce::cost(ranks, 20'160) == RingAllReduce::cost(ranks, 20'160));
}
