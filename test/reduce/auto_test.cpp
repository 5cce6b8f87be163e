// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/auto.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/reduce/collectives/sub_endpoint.hpp>
#include <chorale/transport/counting.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <sstream>

using namespace chorale;
using namespace chorale::test;

static_assert(ReduceAlgorithm<AutoAllReduce, LocalTransport> && ResumableReduce<AutoAllReduce, LocalEndpoint>);
static_assert(ResumableReduce<AutoAllReduce, SubEndpoint<LocalEndpoint>>);  // messages only

TEST_CASE("auto: the fastest for the nearest size is chosen", "[reduce][auto]") {
  auto table = AutoTable{};
  for (auto& row : table.seconds) row = {0, 3, 4, 5, 2, 0};  // the ring, where nothing else is said
  table.seconds[0][1] = 1;                                   // recursive doubling, 1 KiB
  table.seconds[2][5] = 1;                                   // direct, 256 KiB
  CHECK(table.choice(0) == Algorithm::recursive_doubling);
  CHECK(table.choice(4'096) == Algorithm::recursive_doubling);
  CHECK(table.choice(4'097) == Algorithm::ring);
  CHECK(table.choice(65'537) == Algorithm::direct);
  CHECK(table.choice(1'048'576) == Algorithm::direct);
  CHECK(table.choice(1'048'577) == Algorithm::ring);
  CHECK(table.choice(std::size_t{1} << 40) == Algorithm::ring);
  auto text = std::ostringstream{};
  text << table;
  CHECK_THAT(text.str(), Catch::Contains("1024 bytes:  recursive doubling 1e+06 us") &&
                             Catch::Contains("-> recursive doubling\n16384 bytes:") && Catch::Contains("-> direct\n"));
}

TEST_CASE("auto: all ranks measure once, agree on a table, and reduce", "[reduce][auto]") {
  constexpr std::size_t n = 100'003;
  auto const ranks        = GENERATE(1, 2, 3);
  auto const reduce       = AutoAllReduce{};
  auto tables             = std::array<std::shared_ptr<AutoTable const>, 3>{};
  auto const ended        = on_ranks<LocalTransport>(ranks, n, [&](auto& at, auto& x) {
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(at.rank());
    reduce.all_reduce(at, x.first(10), Op::sum);
    auto const copy = reduce;  // knows what the original knows
    auto reducer    = BucketedReducer{copy, at, std::array<std::size_t, 2>{500, n - 10}, x.last(n - 10)};
    reducer.finish();
    tables[static_cast<std::size_t>(at.rank())] = copy.table(at);
    if (copy.table(at) != reduce.table(at)) throw Error{"it was measured twice."};
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(std::all_of(rank.x.begin(), rank.x.end(),
                      [&](float value) { return value == static_cast<float>(ranks * (ranks - 1) / 2); }));
  }
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    REQUIRE(tables[rank] != nullptr);
    CHECK(tables[rank]->seconds == tables[0]->seconds);
  }
}

TEST_CASE("auto: a forced algorithm is used, and nothing is measured", "[reduce][auto]") {
  constexpr std::size_t n = 1'344;
  auto const ended        = on_ranks<Counting<LocalTransport>>(
      4, n, [](auto& at, auto& x) { AutoAllReduce{.forced = Algorithm::ring}.all_reduce(at, x, Op::sum); });
  for (auto const& rank : ended) CHECK(rank.cost == RingAllReduce::cost(4, n * sizeof(float)));
}

TEST_CASE("auto: a group that has messages only cannot be forced to read memory", "[reduce][auto]") {
  auto const ended = on_ranks<LocalTransport>(2, 10, [](auto& at, auto& x) {
    auto group = SubEndpoint{at, {0, 1}};
    AutoAllReduce{.forced = Algorithm::direct}.all_reduce(group, x, Op::sum);
  });
  CHECK_THAT(ended[0].error, Catch::Contains("needs ranks that read each other's memory"));
}

TEST_CASE("auto: with a model it takes what is predicted to be fastest, and tries nothing out", "[reduce][auto]") {
  auto const network = GENERATE(NetworkModel{}, NetworkModel{.far = {.latency = VirtualTime{200'000'000}}},
                                NetworkModel{.far = {.latency = VirtualTime{1'000}, .bytes_per_second = 1e9}});
  auto const ended   = on_ranks<Counting<LocalTransport>>(4, 256, [&](auto& at, auto& x) {
    auto const reduce = AutoAllReduce{.model = network};
    auto const table  = reduce.table(at);
    if (at.sent().messages != 0) throw Error{"something was tried out."};
    for (auto const bytes : AutoTable::sizes) {
      auto best = VirtualTime::max(), chosen = best;
      for (auto const one : all_advised) {
        if (one == ReduceKind::hierarchical) continue;
        auto const time = predicted_time(one, 4, bytes, network);
        best            = std::min(best, time);
        if (name(one) == name(table->choice(bytes))) chosen = time;
      }
      if (chosen != best) throw Error{std::string{name(table->choice(bytes))} + " for " + std::to_string(bytes) + "."};
    }
    for (auto& value : x) value = 1;
    reduce.all_reduce(at, x, Op::sum);
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(std::all_of(rank.x.begin(), rank.x.end(), [](float value) { return value == 4; }));
  }
}
