// SPDX-License-Identifier: Apache-2.0
#include "test/support/cases.hpp"

#include <chorale/reduce/hierarchical.hpp>
#include <chorale/reduce/schedule.hpp>
#include <chorale/transport/simulated.hpp>
#include <chorale/transport/simulated/two_level_endpoint.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <numeric>
#include <tuple>

using namespace chorale;
using namespace chorale::test;
using namespace std::chrono_literals;

namespace {

using Algorithms = std::tuple<RingAllReduce, HalvingDoublingAllReduce, RecursiveDoublingAllReduce, TreeAllReduce,
                              DoubleTreeAllReduce, PairwiseAllReduce, ReduceToOne>;
static_assert(ReduceAlgorithm<RingAllReduce, SimulatedTransport> && LayeredEndpoint<TwoLevelEndpoint>);
static_assert(ResumableReduce<HierarchicalAllReduce<>, TwoLevelEndpoint>);

struct Simulated {
  std::vector<std::vector<float>> x;  // [rank]
  SimulatedRun run;
};

/// body(at, x) on every rank; x is values_of(rank, n) at first.
template <class Body>
Simulated on_virtual_ranks(int ranks, std::size_t n, Body body, SimulatedTransport const& transport = {}) {
  auto result = Simulated{};
  for (Rank rank = 0; rank < ranks; ++rank) result.x.push_back(values_of(rank, n));
  result.run = simulate(
      ranks, [&](SimulatedEndpoint& at) { body(at, Span<float>{result.x[static_cast<std::size_t>(at.rank())]}); },
      transport);
  return result;
}

template <class R> Simulated all_reduced(int ranks, std::size_t n, SimulatedTransport const& transport = {}) {
  return on_virtual_ranks(ranks, n, [](auto& at, auto x) { R{}.all_reduce(at, x, Op::sum); }, transport);
}

/// A clean network with numbers that are easy to add up: one byte takes 1 ns on the wire, and 0.5 ns to take in.
SimulatedTransport clean() {
  return {.model = {.overhead = 100ns, .fold_bytes_per_second = 2e9, .far = {.latency = 5us, .bytes_per_second = 1e9}}};
}

ConstBytes out(Span<float const> x) { return std::as_bytes(x); }
Bytes in(Span<float> x) { return std::as_writable_bytes(x); }

/// Near as around a ring, then far by halving and doubling: element i of n.
float hierarchical_reference(std::vector<std::vector<float>> const& all, int per_host, std::size_t i, std::size_t n) {
  auto const sum   = [](float a, float b) { return a + b; };
  auto const L     = static_cast<std::size_t>(per_host);
  auto const first = (chunk_of(i, n, per_host) + 1) % L;
  auto hosts       = std::vector<float>{};
  for (std::size_t host = 0; host < all.size() / L; ++host) {
    auto of = std::vector<float>{};
    for (std::size_t k = 0; k < L; ++k) of.push_back(all[host * L + k][i]);
    hosts.push_back(in_turn(of, first, sum));
  }
  return halves_first(core_of(hosts, sum), sum);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("an algorithm over virtual ranks has the bits of its documented order, and those over threads",
                        "[transport][simulated]", Algorithms) {
  constexpr std::size_t n = 331;
  for (int ranks = 1; ranks <= 64; ++ranks) {
    auto const simulated = all_reduced<TestType>(ranks, n);
    auto const expected  = reference<TestType>(ranks, n, Op::sum);
    simulated.run.check();
    auto equal = 0;
    for (auto const& x : simulated.x) equal += same_bits(x, expected) ? 1 : 0;
    INFO(ranks << " ranks");
    CHECK(equal == ranks);
    if (ranks > 5) continue;
    auto const threads =
        on_ranks<LocalTransport>(ranks, n, [](auto& at, auto& x) { TestType{}.all_reduce(at, x, Op::sum); });
    for (auto const& rank : threads) CHECK(same_bits(rank.x, expected));
  }
}

TEST_CASE("hierarchical over virtual hosts has the bits of its documented order", "[transport][simulated]") {
  constexpr std::size_t n = 203;
  for (int const per_host : {1, 2, 4, 8})
    for (int hosts = 1; hosts * per_host <= 64; hosts += hosts < 4 ? 1 : 5) {
      auto const ranks     = hosts * per_host;
      auto const simulated = on_virtual_ranks(ranks, n,
                                              [&](auto& at, auto x) {
                                                auto layers = TwoLevelEndpoint{at, per_host};
                                                HierarchicalAllReduce{}.all_reduce(layers, x, Op::sum);
                                              },
                                              {.model = {.ranks_per_host = per_host}});
      simulated.run.check();
      auto all = std::vector<std::vector<float>>{};
      for (Rank rank = 0; rank < ranks; ++rank) all.push_back(values_of(rank, n));
      auto expected = std::vector<float>(n);
      for (std::size_t i = 0; i < n; ++i) expected[i] = hierarchical_reference(all, per_host, i, n);
      INFO(hosts << " hosts of " << per_host);
      for (auto const& x : simulated.x) CHECK(same_bits(x, expected));
    }
  CHECK_THROWS_WITH(simulate(3, [](SimulatedEndpoint& at) { TwoLevelEndpoint(at, 2); }).check(),
                    Catch::Contains("3 ranks do not fill hosts of 2 ranks"));
}

TEMPLATE_LIST_TEST_CASE("virtual ranks send what the schedule says, and the busiest what the cost says",
                        "[transport][simulated]", Algorithms) {
  for (int const ranks : {1, 2, 3, 4, 6, 8, 15, 16, 31, 64}) {
    constexpr std::size_t n = 29'760;  // a multiple of all of these
    auto const run          = all_reduced<TestType>(ranks, n).run;
    auto most               = std::size_t{0};
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto const& end = run.ranks[static_cast<std::size_t>(rank)];
      auto const sent = Sent{static_cast<int>(end.messages), end.bytes};
      CHECK(sent == traffic<TestType>(rank, ranks, n, sizeof(float)));
      most = std::max(most, end.bytes);
    }
    CHECK(most == TestType::cost(ranks, n * sizeof(float)).bytes);
  }
}

TEST_CASE("on a clean network an all-reduce takes what the cost model's formulas say", "[transport][simulated]") {
  auto const o = VirtualTime{100ns}, a = VirtualTime{5us};
  auto const b = [](std::size_t n) { return VirtualTime{std::chrono::nanoseconds{n}}; };
  auto const g = [](std::size_t n) { return VirtualTime{std::chrono::nanoseconds{n} / 2}; };
  SECTION("ring") {
    for (int const P : {2, 3, 5, 8, 24, 64}) {
      auto const n = static_cast<std::size_t>(P) * 50, part = std::size_t{200};
      CHECK(all_reduced<RingAllReduce>(P, n, clean()).run.time == 2 * (P - 1) * (2 * o + a + b(part) + g(part)));
    }
  }
  SECTION("halving-doubling and recursive doubling") {
    for (int k = 1; k <= 6; ++k) {
      auto const P = std::size_t{1} << k, n = P * 50, S = n * sizeof(float);
      auto const halves = (b(S) + g(S)) / P * (P - 1);
      CHECK(all_reduced<HalvingDoublingAllReduce>(1 << k, n, clean()).run.time == 2 * k * (2 * o + a) + 2 * halves);
      CHECK(all_reduced<RecursiveDoublingAllReduce>(1 << k, n, clean()).run.time == k * (2 * o + a + b(S) + g(S)));
    }
  }
  SECTION("tree") {
    for (int k = 2; k <= 6; ++k)
      for (std::size_t const n : {1U, 1'000U}) {
        auto const S    = n * sizeof(float);
        auto const up   = 2 * o + a + b(S) + g(S) + std::max(b(S), o + g(S));
        auto const down = 2 * o + a + b(S) + g(S) + std::max(b(S), o);
        CHECK(all_reduced<TreeAllReduce>((1 << k) - 1, n, clean()).run.time == (k - 1) * (up + down));
      }
  }
}

TEST_CASE("a message takes what its path takes, and shared lines are shared", "[transport][simulated]") {
  auto const far  = NetworkLine{.latency = 10us, .bytes_per_second = 1e9};
  auto transport  = SimulatedTransport{.model = {.overhead              = 0ns,
                                                 .fold_bytes_per_second = 1e30,
                                                 .near                  = {.latency = 1us, .bytes_per_second = 4e9},
                                                 .far                   = far,
                                                 .ranks_per_host        = 2,
                                                 .hosts_per_rack        = 2,
                                                 .oversubscription      = 4}};
  auto const time = [&](std::vector<std::pair<Rank, Rank>> pairs) {
    auto x = std::vector<float>(1'000);  // 4 us over far, 1 us over near
    return simulate(
               8,
               [&](SimulatedEndpoint& at) {
                 auto y = std::vector<float>(1'000);
                 for (auto const& [from, to] : pairs) {
                   if (at.rank() == from) at.send(to, Tag{}, out(x)).wait();
                   if (at.rank() == to) at.recv(from, Tag{}, in(y)).wait();
                 }
               },
               transport)
        .check()
        .time;
  };
  CHECK(time({{0, 1}}) == VirtualTime{2us});
  CHECK(time({{0, 2}}) == VirtualTime{14us});
  CHECK(time({{0, 2}, {1, 3}}) == VirtualTime{18us});  // one line per host
  CHECK(time({{0, 2}, {2, 1}}) == VirtualTime{28us});  // both directions, one after the other
  CHECK(time({{0, 4}}) == VirtualTime{28us});          // an uplink of 0.5 GB/s, twice the latency
  CHECK(time({{0, 4}, {2, 6}}) == VirtualTime{36us});  // two hosts, one uplink
  transport.model.oversubscription = 1;
  CHECK(time({{0, 4}, {2, 6}}) == VirtualTime{26us});  // an uplink for two: 2 us, then 2 us + 4 us
}

TEST_CASE("slow ranks and noise make it later, by what the seed says", "[transport][simulated]") {
  auto const time = [](NetworkModel const& model) {
    return all_reduced<RingAllReduce>(16, 1'600, {.model = model}).run;
  };
  auto const plain = time({}), slow = time({.slow = 0.3, .slowness = 5}), noisy = time({.noise = 0.2});
  CHECK(slow.time > plain.time);
  CHECK(noisy.time > plain.time);
  CHECK(noisy.time < plain.time * 12 / 10);
  CHECK(noisy.trace == time({.noise = 0.2}).trace);
  CHECK(noisy.trace != time({.noise = 0.2, .seed = 2}).trace);
  CHECK(slow.trace != time({.slow = 0.3, .slowness = 5, .seed = 3}).trace);
}

TEST_CASE("equal options give equal simulations, and the clock goes on from one to the next",
          "[transport][simulated]") {
  CHECK(all_reduced<RingAllReduce>(9, 100).run.trace == all_reduced<RingAllReduce>(9, 100).run.trace);
  CHECK(all_reduced<RingAllReduce>(9, 100).run.trace != all_reduced<RingAllReduce>(9, 101).run.trace);
  auto endpoints  = SimulatedTransport{}.connect(Group::all_local(4));
  auto const body = [](SimulatedEndpoint& at) { at.work(VirtualTime{3us}); };
  CHECK(simulate(endpoints, body).time == VirtualTime{3us});
  CHECK(simulate(endpoints, body).time == VirtualTime{6us});
}

TEST_CASE("when all ranks wait, that is found at once: who waits for whom, tag and bytes", "[transport][simulated]") {
  auto x         = std::vector<std::vector<float>>(4, std::vector<float>(25));
  auto const run = simulate(4, [&](SimulatedEndpoint& at) {
    if (at.rank() == 3) return;
    at.recv((at.rank() + 1) % 4, Tag{7}, in(x[static_cast<std::size_t>(at.rank())])).wait();
  });
  CHECK(run.deadlock ==
        "rank 0 waits for rank 1 in recv, tag 7, 100 bytes; rank 1 waits for rank 2 in recv, tag 7, "
        "100 bytes; rank 2 waits for rank 3 in recv, tag 7, 100 bytes; rank 3 has ended");
  CHECK(run.time < VirtualTime{1ms});
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(run.ranks[rank].lost == 3);
  CHECK(run.ranks[3].message == "");
  auto const circle = simulate(12, [&](SimulatedEndpoint& at) {
    auto y = std::vector<float>(2);
    at.recv((at.rank() + 1) % 12, Tag{at.rank() == 0 ? 1U : 2U}, in(y)).wait();
  });
  CHECK_THAT(circle.deadlock,
             Catch::Contains("rank 0 waits for rank 1 in recv, tag 1, 8 bytes") && Catch::Contains("and 4 more"));
  for (auto const& rank : circle.ranks) CHECK(rank.error != nullptr);
  CHECK_THROWS_AS(circle.check(), PeerLost);
}

TEST_CASE("a wait ends after the timeout of virtual time, and names who is behind it", "[transport][simulated]") {
  auto const run = simulate(4,
                            [&](SimulatedEndpoint& at) {
                              auto x = std::vector<float>(5);
                              at.begin_step(17);
                              if (at.rank() == 0) at.work(VirtualTime{100s});
                              else at.recv(at.rank() - 1, Tag{4}, in(x)).wait();  // 3 for 2 for 1 for 0
                            },
                            {.timeout = 2s});
  for (std::size_t rank = 1; rank < 4; ++rank) {
    CHECK(run.ranks[rank].at == VirtualTime{2s});
    CHECK(run.ranks[rank].lost == 0);
    CHECK_THAT(run.ranks[rank].message,
               Catch::Contains("lost rank 0 in step 17") && Catch::Contains("tag 4, 20 bytes, after 2000 ms"));
  }
  CHECK(run.ranks[0].error == nullptr);
  CHECK(run.deadlock == "");
}

TEST_CASE("a rank that fails or throws is named by all others", "[transport][simulated]") {
  auto const ways = GENERATE(0, 1);
  auto const run  = on_virtual_ranks(5, 100, [&](auto& at, auto x) {
                     for (int step = 0; step < 3; ++step) {
                       if (step == 1 && at.rank() == 2) {
                         if (ways == 0) at.fail("the disk is full");
                         throw Error{"the disk is full."};
                       }
                       RingAllReduce{}.all_reduce(at, x, Op::sum);
                     }
                   }).run;
  for (Rank rank = 0; rank < 5; ++rank) {
    auto const& end = run.ranks[static_cast<std::size_t>(rank)];
    CHECK_THAT(end.message, Catch::Contains("the disk is full"));
    CHECK(end.lost == (rank == 2 ? -1 : 2));
  }
}

TEST_CASE("ranks that bring different sizes, or call different operations, are told both", "[transport][simulated]") {
  auto const sizes = on_virtual_ranks(2, 100, [](auto& at, auto x) {
                       auto y = std::vector<float>(60);
                       if (at.rank() == 0) at.send(1, Tag{9}, out(x)).wait();
                       else at.recv(0, Tag{9}, in(y)).wait();
                       at.recv(1 - at.rank(), Tag{10}, in(y)).wait();
                     }).run;
  for (auto const& end : sizes.ranks)
    CHECK_THAT(end.message, Catch::Contains("rank 0 sent 400 bytes where rank 1 expected 240 bytes, tag 9"));
  auto const calls = on_virtual_ranks(2, 100, [](auto& at, auto x) {
                       RingAllReduce{}.all_reduce(at, x, at.rank() == 0 ? Op::sum : Op::max, Tag{3});
                     }).run;
  for (auto const& end : calls.ranks)
    CHECK_THAT(end.message, Catch::Contains("all_reduce (sum) of 100 float, tag 3, at simulated_test.cpp") &&
                                Catch::Contains("all_reduce (max)"));
  CHECK_THROWS_AS(calls.check(), Disagreement);
}

TEST_CASE("a message holds what was sent when its send was done", "[transport][simulated]") {
  auto got       = std::vector<float>{};
  auto const run = simulate(2, [&](SimulatedEndpoint& at) {
    auto x = std::vector<float>{1};
    if (at.rank() == 0) {
      for (unsigned i = 1; i <= 3; ++i) {
        x[0] = static_cast<float>(i);
        at.send(1, Tag{i}, out(x)).wait();
        x[0] = 0;
      }
      at.send(0, Tag{}, {}).wait();  // to itself
      at.recv(0, Tag{}, {}).wait();
      return;
    }
    at.work(VirtualTime{1ms});  // all three have arrived by then
    for (unsigned i = 3; i >= 1; --i) {
      at.recv(0, Tag{i}, in(x)).wait();
      got.push_back(x[0]);
    }
  });
  run.check();
  CHECK(got == std::vector<float>{3, 2, 1});
}

TEST_CASE("sizes only: no memory is touched, and the time is the same", "[transport][simulated]") {
  auto const exchange = [](SimulatedEndpoint& at, Bytes bytes) {
    auto sent = at.send(1 - at.rank(), Tag{}, bytes);
    at.recv(1 - at.rank(), Tag{}, bytes).wait();
    sent.wait();
  };
  auto const nowhere = Bytes{reinterpret_cast<std::byte*>(64), std::size_t{1} << 38};
  auto const sizes   = simulate(2, [&](auto& at) { exchange(at, nowhere); }, {.payload = SimulatedPayload::sizes});
  sizes.check();
  CHECK(seconds(sizes.time) == Approx(274877906944.0 / 12.5e9 + 274877906944.0 / 20e9));
}

TEST_CASE("ranks that only look make progress, and computing hides what travels", "[transport][simulated]") {
  auto x         = std::vector<float>(4);
  auto const run = simulate(2, [&](SimulatedEndpoint& at) {
    auto y       = std::vector<float>(4);
    auto pending = at.rank() == 0 ? at.send(1, Tag{}, out(x)) : at.recv(0, Tag{}, in(y));
    spin_until([&] { return pending.done(); });
  });
  run.check();
  for (int const looks : {998, 999, 1'000, 1'001}) {  // then it waits: the last look is no wait
    auto const waits = simulate(2, [&](SimulatedEndpoint& at) {
      auto y = std::vector<float>(4);
      at.work(VirtualTime{1us} * at.rank());
      auto pending = at.rank() == 0 ? at.recv(1, Tag{}, in(y)) : at.send(0, Tag{}, out(x));
      for (int i = 0; i < looks && !pending.done(); ++i) {}
      pending.wait();
    });
    CHECK(waits.deadlock == "");
    CHECK(waits.ranks[0].message == "");
  }
  auto const looks_on = simulate(2, [&](SimulatedEndpoint& at) {
    auto y = std::vector<float>(4);
    if (at.rank() == 0) at.work(VirtualTime{1s});
    else spin_until([pending = at.recv(0, Tag{}, in(y))]() mutable { return pending.done(); });
  });
  CHECK(looks_on.ranks[1].lost == 0);
  CHECK_THAT(looks_on.deadlock, Catch::Contains("rank 1 looks, and nothing comes"));
  auto const hidden = simulate(2,
                               [&](SimulatedEndpoint& at) {
                                 auto y        = std::vector<float>(100'000);
                                 auto sent     = at.send(1 - at.rank(), Tag{}, out(Span<float>{y}));
                                 auto received = at.recv(1 - at.rank(), Tag{}, in(y));
                                 at.work(VirtualTime{1ms});
                                 if (!received.done()) throw Error{"it has not come in a millisecond"};
                                 sent.wait();
                               },
                               {.payload = SimulatedPayload::sizes});
  CHECK(seconds(hidden.check().time) == Approx(1e-3 + 2 * 0.5e-6 + 400'000 / 20e9));
}

TEST_CASE("a rank may wait while it handles an exception", "[transport][simulated]") {
  auto sentences = std::vector<std::string>(6);
  simulate(6, [&](SimulatedEndpoint& at) {
    auto x = std::vector<float>{static_cast<float>(at.rank())};
    try {
      throw Error{"of rank " + std::to_string(at.rank())};
    } catch (Error const&) {
      RingAllReduce{}.all_reduce(at, Span<float>{x}, Op::sum);
      try {
        throw;
      } catch (Error const& error) { sentences[static_cast<std::size_t>(at.rank())] = error.what(); }
    }
    if (x[0] != 15 || std::uncaught_exceptions() != 0) throw Error{"a wrong sum"};
  }).check();
  for (std::size_t rank = 0; rank < 6; ++rank) CHECK(sentences[rank] == "chorale: of rank " + std::to_string(rank));
}

TEST_CASE("a simulation refuses what makes no sense", "[transport][simulated]") {
  auto endpoints = SimulatedTransport{}.connect(Group::all_local(2));
  CHECK_THROWS_WITH(endpoints[0].send(1, Tag{}, {}), Catch::Contains("is used while none runs"));
  CHECK_THROWS_WITH(endpoints[0].recv(2, Tag{}, {}), Catch::Contains("no rank 2 in a group of 2"));
  CHECK_THROWS_AS(SimulatedTransport{}.connect(Group{2, {0}}), BadArgument);
  CHECK_THROWS_AS((SimulatedTransport{.model = {.ranks_per_host = 0}}.connect(Group::all_local(2))), BadArgument);
  CHECK_THROWS_AS((SimulatedTransport{.model = {.noise = -1}}.connect(Group::all_local(2))), BadArgument);
  CHECK_THROWS_AS((SimulatedTransport{.timeout = 0s}.connect(Group::all_local(2))), BadArgument);
  auto one = std::vector{endpoints[0]};
  CHECK_THROWS_WITH(simulate(one, [](auto&) {}), Catch::Contains("got 1 endpoints"));
  auto const other = simulate(endpoints, [&](SimulatedEndpoint& at) {
    if (at.rank() == 0) endpoints[1].work(VirtualTime{1us});
  });
  CHECK_THAT(other.ranks[0].message, Catch::Contains("rank 1 of a simulation is used while rank 0 runs"));
}
