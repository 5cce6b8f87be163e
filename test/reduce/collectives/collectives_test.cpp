// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/collectives.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/reduce/schedule_proof.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

template <Schedule S> constexpr bool proved() {
  return Proof<S, check_up_to<S>(16)>::checked && Proof<S, check<S>(31)>::checked && Proof<S, check<S>(32)>::checked &&
         Proof<S, check<S>(33)>::checked && Proof<S, check<S>(64)>::checked;
}
static_assert(proved<BinomialReduce>() && proved<BinomialBroadcast>());
static_assert(proved<RingReduceScatter>() && proved<RingAllGather>() && proved<PairwiseExchange>());
static_assert(Endpoint<SubEndpoint<LocalEndpoint>>);

/// A rank brings whole numbers, so that a sum in any order has the same bits.
std::int64_t brought(Rank rank, std::size_t i) { return rank * 1'000'003 + static_cast<std::int64_t>(i % 7'919); }

std::int64_t total(int ranks, std::size_t i) {
  auto sum = std::int64_t{0};
  for (Rank rank = 0; rank < ranks; ++rank) sum += brought(rank, i);
  return sum;
}

void expect(bool right, char const* what) {
  if (!right) throw Error{std::string{what} + " is wrong."};
}

/// Runs body(at, x) where x[i] = brought(rank, i), and checks that no rank complains.
template <class Body> void on(int ranks, std::size_t n, Body body) {
  auto const ended = on_ranks<LocalTransport>(ranks, 0, [&](auto& at, auto&) {
    auto x = std::vector<std::int64_t>(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = brought(at.rank(), i);
    body(at, Span<std::int64_t>{x});
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
}

}  // namespace

TEST_CASE("reduce leaves the sum at the root, whichever it is", "[reduce][collectives]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 5, 10'007, 70'001);
  for (Rank const root : {0, ranks / 2, ranks - 1})
    on(ranks, n, [&](auto& at, auto x) {
      chorale::reduce(at, x, Op::sum, root);
      for (std::size_t i = 0; i < n; ++i) expect(at.rank() != root || x[i] == total(at.size(), i), "the sum");
    });
}

TEST_CASE("reduce combines in the order of ranks, as a balanced tree", "[reduce][collectives]") {
  auto const ended = on_ranks<LocalTransport>(5, 1'001, [](auto& at, auto& x) { reduce(at, x, Op::sum); });
  for (std::size_t i = 0; i < 1'001; ++i) {
    auto of = std::vector<float>{};
    for (Rank rank = 0; rank < 5; ++rank) of.push_back(values_of(rank, 1'001)[i]);
    CHECK(ended[0].x[i] == ((of[0] + of[1]) + (of[2] + of[3])) + of[4]);
  }
}

TEST_CASE("broadcast copies the root's values to all, of any type", "[reduce][collectives]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 5, 10'007, 70'001);
  for (Rank const root : {0, ranks / 2, ranks - 1})
    on(ranks, n, [&](auto& at, auto x) {
      broadcast(at, x, root);
      for (std::size_t i = 0; i < n; ++i) expect(x[i] == brought(root, i), "the copy");
      struct Pair {
        char letter;
        double number;
      };
      auto pair = Pair{static_cast<char>('a' + at.rank()), at.rank() + 0.5};
      broadcast(at, Span<Pair>{&pair, 1}, root);
      expect(pair.letter == 'a' + root && pair.number == root + 0.5, "the pair");
    });
}

TEST_CASE("reduce_scatter leaves each rank its share of the sum", "[reduce][collectives]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 5, 10'007, 200'003);
  on(ranks, n, [&](auto& at, auto x) {
    auto const mine = reduce_scatter(at, x, Op::sum);
    auto const part = share(n, at.rank(), at.size());
    expect(mine.size() == part.size() && mine.data() == x.data() + part.begin, "the share");
    for (std::size_t i = 0; i < mine.size(); ++i) expect(mine[i] == total(at.size(), part.begin + i), "the sum");
  });
}

TEST_CASE("all_gather puts together what all ranks have, as many or not", "[reduce][collectives]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const n     = GENERATE(as<std::size_t>{}, 0, 1, 1'344, 40'009);
  on(ranks, n, [&](auto& at, auto mine) {
    auto const P = static_cast<std::size_t>(at.size());
    auto all     = std::vector<std::int64_t>(n * P);
    all_gather(at, mine, Span<std::int64_t>{all});
    for (std::size_t i = 0; i < all.size(); ++i) expect(all[i] == brought(static_cast<Rank>(i / n), i % n), "the copy");

    auto counts = std::vector<std::size_t>{};  // the first has all, the second half, ..
    for (std::size_t r = 0; r < P; ++r) counts.push_back(r % 3 == 2 ? 0 : n / (r + 1));
    auto sum = std::size_t{0};
    for (auto const count : counts) sum += count;
    all.assign(sum, 0);
    all_gather(at, mine.first(counts[static_cast<std::size_t>(at.rank())]), Span<std::int64_t>{all}, counts);
    auto next = all.begin();
    for (std::size_t r = 0; r < P; ++r)
      for (std::size_t i = 0; i < counts[r]; ++i) expect(*next++ == brought(static_cast<Rank>(r), i), "an uneven copy");
  });
}

TEST_CASE("all_to_all sends each rank its part", "[reduce][collectives]") {
  auto const ranks = GENERATE(1, 2, 3, 4, 5, 7, 8, 16);
  auto const part  = GENERATE(as<std::size_t>{}, 0, 1, 85, 40'009);
  on(ranks, part * static_cast<std::size_t>(ranks), [&](auto& at, auto in) {
    auto out = std::vector<std::int64_t>(in.size());
    all_to_all(at, in, Span<std::int64_t>{out});
    auto const me = static_cast<std::size_t>(at.rank());
    for (std::size_t i = 0; i < out.size(); ++i)
      expect(out[i] == brought(static_cast<Rank>(i / part), me * part + i % part), "the part");
  });
}

TEST_CASE("no rank leaves a barrier before all have come", "[reduce][collectives]") {
  auto const ranks = GENERATE(1, 2, 3, 5, 8);
  auto came        = std::atomic<int>{0};
  on(ranks, 0, [&](auto& at, auto) {
    for (int round = 1; round <= 50; ++round) {
      ++came;
      barrier(at);
      expect(came.load() >= round * ranks, "the number of ranks that came");
      barrier(at);
    }
  });
}

TEST_CASE("a rank sends and receives numbers", "[reduce][collectives]") {
  on(3, 10, [](auto& at, auto x) {
    auto got  = std::vector<std::int64_t>(10);
    auto sent = send(at, (at.rank() + 1) % 3, x, Tag{4});
    receive(at, (at.rank() + 2) % 3, Span<std::int64_t>{got}, Tag{4}).wait();
    sent.wait();
    expect(got[9] == brought((at.rank() + 2) % 3, 9), "the message");
  });
}

TEST_CASE("a group within the group has its own ranks and reduces alone", "[reduce][collectives]") {
  on(7, 1'001, [](auto& at, auto x) {
    auto const odd   = at.rank() % 2 == 1;
    auto const ranks = odd ? std::vector<Rank>{5, 3, 1} : std::vector<Rank>{0, 2, 4, 6};
    auto group       = SubEndpoint{at, ranks};
    expect(ranks[static_cast<std::size_t>(group.rank())] == at.rank(), "the rank within");
    broadcast(group, x.first(1), 1);  // rank 3, or rank 2
    expect(x[0] == brought(odd ? 3 : 2, 0), "the copy");
    RecursiveDoublingAllReduce{}.all_reduce(group, x, Op::sum);
    for (std::size_t i = 1; i < x.size(); ++i)
      expect(x[i] == (odd ? brought(5, i) + brought(3, i) + brought(1, i)
                          : brought(0, i) + brought(2, i) + brought(4, i) + brought(6, i)),
             "the sum within");
    barrier(at);
  });
}

TEST_CASE("what cannot be done is refused on the rank that asks", "[reduce][collectives]") {
  auto endpoints = LocalTransport{}.connect(Group::all_local(2));
  auto& at       = endpoints[0];
  auto x         = std::vector<float>(10);
  auto all       = Span<float>{x};
  CHECK_THROWS_WITH(broadcast(at, all, 2), Catch::Contains("no rank 2 to be the root in a group of 2"));
  CHECK_THROWS_WITH(chorale::reduce(at, all, Op::sum, -1), Catch::Contains("no rank -1"));
  CHECK_THROWS_WITH(all_gather(at, all.first(3), all), Catch::Contains("all_gather of 6 elements into 10"));
  CHECK_THROWS_WITH(all_to_all(at, all.first(5), all.last(5)), Catch::Contains("all_to_all of 5 elements into 5"));
  CHECK_THROWS_WITH((SubEndpoint{at, {1}}), Catch::Contains("rank 0 makes a group of 1 ranks without itself"));
  CHECK_THROWS_WITH((SubEndpoint{at, {0, 2}}), Catch::Contains("rank 2 is there twice, or not in a group of 2"));
  CHECK_THROWS_WITH((SubEndpoint{at, {0, 0}}), Catch::Contains("rank 0 is there twice"));
}
