// SPDX-License-Identifier: Apache-2.0
// Small worlds, in every order in which their messages can arrive.
#include "test/support/cases.hpp"

#include <chorale/transport/simulated/explore_orders.hpp>

#include <catch2/catch.hpp>

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr std::size_t bound = 20'000;  // orders; see every_order()

struct Tried {
  OrdersTried orders;
  std::size_t right = 0;
};

template <class R> Tried try_orders(int ranks, std::size_t n, std::size_t most = bound) {
  auto const expected = reference<R>(ranks, n, Op::sum);
  auto tried          = Tried{};
  tried.orders        = every_order(most, {}, [&](SimulatedTransport const& transport) {
    auto x = std::vector<std::vector<float>>{};
    for (Rank rank = 0; rank < ranks; ++rank) x.push_back(values_of(rank, n));
    auto const run = simulate(
        ranks,
        [&](SimulatedEndpoint& at) {
          R{}.all_reduce(at, Span<float>{x[static_cast<std::size_t>(at.rank())]}, Op::sum);
        },
        transport);
    auto const right = run.deadlock.empty() &&
                       std::all_of(x.begin(), x.end(), [&](auto const& mine) { return same_bits(mine, expected); });
    tried.right += right ? 1 : 0;
    return right;
  });
  return tried;
}

/// Adds up whatever comes first: the bits depend on the order.
struct FirstComeAllReduce {
  template <Endpoint E> void all_reduce(E& at, Span<float> x, Op) const {
    auto const P = static_cast<std::size_t>(at.size()), me = static_cast<std::size_t>(at.rank());
    auto const mine = std::vector<float>(x.begin(), x.end());
    auto theirs     = std::vector<std::vector<float>>(P, std::vector<float>(x.size()));
    auto coming     = std::vector<typename E::pending>(P);
    auto sent       = std::vector<typename E::pending>(P);
    for (Rank peer = 0; peer < at.size(); ++peer) {
      if (peer == at.rank()) continue;
      auto const i = static_cast<std::size_t>(peer);
      coming[i]    = at.recv(peer, Tag{}, std::as_writable_bytes(Span<float>{theirs[i]}));
      sent[i]      = at.send(peer, Tag{}, std::as_bytes(Span<float const>{mine}));
    }
    auto added = std::vector<bool>(P);
    added[me]  = true;
    while (std::find(added.begin(), added.end(), false) != added.end())
      for (std::size_t i = 0; i < P; ++i) {
        if (added[i] || !coming[i].done()) continue;
        for (std::size_t k = 0; k < x.size(); ++k) x[k] += theirs[i][k];
        added[i] = true;
      }
    for (auto& one : sent) one.wait();
  }
};

/// Right, as long as rank 0 hears from rank 1 first.
struct ImpatientAllReduce {
  template <Endpoint E> void all_reduce(E& at, Span<float> x, Op) const {
    auto y = std::vector<float>(x.begin(), x.end());
    if (at.rank() != 0) {
      at.send(0, Tag{}, std::as_bytes(x)).wait();
      at.recv(0, Tag{}, std::as_writable_bytes(x)).wait();
      return;
    }
    auto first = at.recv(1, Tag{}, std::as_writable_bytes(Span<float>{y}));
    for (Rank peer = 2; peer < at.size(); ++peer) {
      auto z = y;
      at.recv(peer, Tag{}, std::as_writable_bytes(Span<float>{z})).wait();
      if (peer == 2 && !first.done()) at.recv(1, Tag{5}, {}).wait();  // waits for what never comes
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += z[i];
    }
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    for (Rank peer = 1; peer < at.size(); ++peer) at.send(peer, Tag{}, std::as_bytes(x)).wait();
  }
};

}  // namespace

TEST_CASE("all orders of delivery give the same bits, and none blocks", "[transport][simulated][orders]") {
  auto const whole = [](Tried const& tried, std::size_t orders) {
    CHECK(tried.orders.all);
    CHECK(tried.orders.orders == orders);
    CHECK(tried.right == orders);
  };
  whole(try_orders<RingAllReduce>(2, 4), 4);
  whole(try_orders<RingAllReduce>(3, 4), 3'072);
  whole(try_orders<HalvingDoublingAllReduce>(3, 4), 9);
  whole(try_orders<RecursiveDoublingAllReduce>(4, 4), 1'120);
  whole(try_orders<TreeAllReduce>(4, 4), 9);
  whole(try_orders<DoubleTreeAllReduce>(4, 4), 12'096);
}

TEST_CASE("of worlds with more orders than can be tried, the first ones give the same bits",
          "[transport][simulated][orders]") {
  for (auto const& tried : {try_orders<RingAllReduce>(4, 5, 5'000), try_orders<HalvingDoublingAllReduce>(4, 5, 5'000),
                            try_orders<PairwiseAllReduce>(3, 5, 5'000)}) {
    CHECK_FALSE(tried.orders.all);
    CHECK(tried.orders.orders == 5'000);
    CHECK(tried.right == 5'000);
  }
}

TEST_CASE("an order that gives other bits, or blocks, is found and replayed", "[transport][simulated][orders]") {
  auto results = std::vector<std::vector<float>>{};
  auto orders  = every_order(bound, {}, [&](SimulatedTransport const& transport) {
    auto x = std::vector<std::vector<float>>{};
    for (Rank rank = 0; rank < 3; ++rank) {
      x.push_back(values_of(rank, 40));
      for (auto& value : x.back()) value *= rank == 0 ? 1.0F : rank == 1 ? 49.1F : 7.3F;  // so that order shows
    }
    simulate(
        3,
        [&](SimulatedEndpoint& at) {
          FirstComeAllReduce{}.all_reduce(at, Span<float>{x[static_cast<std::size_t>(at.rank())]}, Op::sum);
        },
        transport)
        .check();
    if (std::none_of(results.begin(), results.end(), [&](auto const& other) { return same_bits(other, x[0]); }))
      results.push_back(x[0]);
    return true;
  });
  CHECK(orders.all);
  CHECK(orders.orders == 720);  // six messages
  CHECK(results.size() == 2);   // rank 0 hears from 1 first, or from 2
  auto deadlock  = std::string{};
  auto const run = [](SimulatedTransport const& transport) {
    auto x = std::vector<std::vector<float>>(3, std::vector<float>{1});
    return simulate(
               3,
               [&](SimulatedEndpoint& at) {
                 ImpatientAllReduce{}.all_reduce(at, Span<float>{x[static_cast<std::size_t>(at.rank())]}, Op::sum);
               },
               transport)
        .deadlock;
  };
  orders = every_order(bound, {}, [&](SimulatedTransport const& transport) {
    deadlock = run(transport);
    return deadlock.empty();
  });
  CHECK_FALSE(orders.all);
  CHECK_THAT(deadlock, Catch::Contains("rank 0 waits for rank 1 in recv, tag 5"));
  CHECK(every_order(1, {}, [&](SimulatedTransport const& transport) { return run(transport).empty(); }).orders == 1);
}

TEST_CASE("seeded orders beyond the bound give the same bits", "[transport][simulated][orders]") {
  auto const expected = reference<RingAllReduce>(4, 9, Op::sum);
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
    auto x     = std::vector<std::vector<float>>{};
    auto drawn = std::uint64_t{0};
    for (Rank rank = 0; rank < 4; ++rank) x.push_back(values_of(rank, 9));
    auto const choose = [&](std::size_t n) -> std::size_t { return Random{seed, 0}.below(drawn++, n); };
    simulate(4,
             [&](SimulatedEndpoint& at) {
               RingAllReduce{}.all_reduce(at, Span<float>{x[static_cast<std::size_t>(at.rank())]}, Op::sum);
             },
             {.choose = choose})
        .check();
    auto const same = std::all_of(x.begin(), x.end(), [&](auto const& mine) { return same_bits(mine, expected); });
    if (!same || drawn == 0) FAIL("seed " << seed);
  }
}
