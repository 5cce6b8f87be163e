// SPDX-License-Identifier: Apache-2.0
// Many ranks: 256, and 4096 where slow tests run, see test/support/slow.hpp.
#include "test/support/cases.hpp"
#include "test/support/slow.hpp"

#include <chorale/reduce/hierarchical.hpp>
#include <chorale/transport/simulated.hpp>
#include <chorale/transport/simulated/two_level_endpoint.hpp>

#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <cstdio>
#include <ctime>

using namespace chorale;
using namespace chorale::test;

namespace {

struct Measured {
  std::vector<std::vector<float>> x;
  SimulatedRun run;
};

/// body(at, x) on so many ranks, and what that took.
template <class Body> Measured on_many(char const* what, int ranks, std::size_t n, Body body) {
  auto measured    = Measured{};
  auto const begin = std::chrono::steady_clock::now();
  auto const cpu   = std::clock();
  for (Rank rank = 0; rank < ranks; ++rank) measured.x.push_back(values_of(rank, n));
  measured.run = simulate(
      ranks, [&](SimulatedEndpoint& at) { body(at, Span<float>{measured.x[static_cast<std::size_t>(at.rank())]}); });
  measured.run.check();
  auto messages = std::size_t{0};
  for (auto const& end : measured.run.ranks) messages += end.messages;
  auto usage = rusage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%-18s %d ranks, %zu messages: virtual %.6f s, real %.2f s, processor %.2f s, at most %ld MiB so far\n",
              what, ranks, messages, seconds(measured.run.time),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
              static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, usage.ru_maxrss / 1'024);
  CHECK(usage.ru_maxrss < long{8} << 20);  // KiB
  return measured;
}

template <class R> void check_bits(char const* what, int ranks) {
  constexpr std::size_t n = 96;
  auto const measured     = on_many(what, ranks, n, [](auto& at, auto x) { R{}.all_reduce(at, x, Op::sum); });
  auto const expected     = reference<R>(ranks, n, Op::sum);
  auto equal              = 0;
  for (auto const& x : measured.x) equal += same_bits(x, expected) ? 1 : 0;
  CHECK(equal == ranks);
}

/// Over hosts of 8 ranks.
void check_hierarchical(int ranks) {
  auto const P        = static_cast<float>(ranks);
  auto const measured = on_many("hierarchical", ranks, 96, [](auto& at, auto x) {
    auto layers = TwoLevelEndpoint{at, 8};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((at.rank() + static_cast<int>(i)) % 16);
    HierarchicalAllReduce{}.all_reduce(layers, x, Op::sum);
  });
  auto wrong          = 0;
  for (auto const& x : measured.x)
    for (auto const value : x) wrong += value == P * 7.5F ? 0 : 1;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a ring of 256 ranks has the bits of its documented order", "[transport][simulated]") {
  check_bits<RingAllReduce>("ring", 256);
}

TEST_CASE("halving-doubling over 256 ranks has the bits of its documented order", "[transport][simulated]") {
  check_bits<HalvingDoublingAllReduce>("halving-doubling", 256);
}

TEST_CASE("trees of 256 ranks have the bits of their documented order", "[transport][simulated]") {
  check_bits<TreeAllReduce>("tree", 256);
  check_bits<DoubleTreeAllReduce>("double tree", 256);
}

TEST_CASE("hierarchical over 32 hosts of 8 ranks: whole numbers have their sum", "[transport][simulated]") {
  check_hierarchical(256);
}

TEST_CASE("4,096 ranks have the bits of the documented orders, and whole numbers their sum over 512 hosts",
          "[transport][simulated][slow]") {
  if (!slow_or_skip("4,096 ranks have the bits of the documented orders, and whole numbers their sum over 512 hosts"))
    return;
  check_bits<RingAllReduce>("ring", 4'096);
  check_bits<HalvingDoublingAllReduce>("halving-doubling", 4'096);
  check_bits<TreeAllReduce>("tree", 4'096);
  check_bits<DoubleTreeAllReduce>("double tree", 4'096);
  check_hierarchical(4'096);
}
