// SPDX-License-Identifier: Apache-2.0
// Many ranks: 256 here, 4096 with CHORALE_SLOW=1.
#include "test/support/cases.hpp"

#include <chorale/reduce/hierarchical.hpp>
#include <chorale/transport/simulated.hpp>
#include <chorale/transport/simulated_layers.hpp>

#include <catch2/catch.hpp>

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

using namespace chorale;
using namespace chorale::test;

namespace {

bool is_slow() { return std::getenv("CHORALE_SLOW") != nullptr; }
int  many() { return is_slow() ? 4'096 : 256; }

struct Measured {
  std::vector<std::vector<float>> x;
  SimulatedRun run;
};

/// body(at, x) on many ranks, and what that took.
template <class Body>
Measured on_many(char const* what, std::size_t n, Body body) {
  auto measured    = Measured{};
  auto const begin = std::chrono::steady_clock::now();
  auto const cpu   = std::clock();
  for (Rank rank = 0; rank < many(); ++rank) measured.x.push_back(values_of(rank, n));
  measured.run = simulate(many(), [&](SimulatedEndpoint& at) {
    body(at, Span<float>{measured.x[static_cast<std::size_t>(at.rank())]});
  });
  measured.run.check();
  auto messages = std::size_t{0};
  for (auto const& end : measured.run.ranks) messages += end.messages;
  auto usage = rusage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%-18s %d ranks, %zu messages: virtual %.6f s, real %.2f s, processor %.2f s, at most %ld MiB so far\n",
              what, many(), messages, seconds(measured.run.time),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
              static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, usage.ru_maxrss / 1'024);
  CHECK(usage.ru_maxrss < long{8} << 20);                                  // KiB
  return measured;
}

template <class R>
void check_bits(char const* what) {
  constexpr std::size_t n = 96;
  auto const measured     = on_many(what, n, [](auto& at, auto x) { R{}.all_reduce(at, x, Op::sum); });
  auto const expected     = reference<R>(many(), n, Op::sum);
  auto equal              = 0;
  for (auto const& x : measured.x) equal += same_bits(x, expected) ? 1 : 0;
  CHECK(equal == many());
}

}  // namespace

TEST_CASE("a ring of many ranks has the bits of its documented order", "[transport][simulated][slow]") {
  check_bits<RingAllReduce>("ring");
}

TEST_CASE("halving-doubling over many ranks has the bits of its documented order", "[transport][simulated][slow]") {
  check_bits<HalvingDoublingAllReduce>("halving-doubling");
}

TEST_CASE("trees of many ranks have the bits of their documented order", "[transport][simulated][slow]") {
  check_bits<TreeAllReduce>("tree");
  check_bits<DoubleTreeAllReduce>("double tree");
}

TEST_CASE("hierarchical over many hosts: whole numbers have their sum", "[transport][simulated][slow]") {
  auto const P        = static_cast<float>(many());
  auto const measured = on_many("hierarchical", 96, [](auto& at, auto x) {
    auto layers = SimulatedLayers{at, 8};
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((at.rank() + static_cast<int>(i)) % 16);
    HierarchicalAllReduce{}.all_reduce(layers, x, Op::sum);
  });
  auto wrong = 0;
  for (auto const& x : measured.x)
    for (auto const value : x) wrong += value == P * 7.5F ? 0 : 1;
  CHECK(wrong == 0);
}
