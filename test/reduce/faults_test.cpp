// SPDX-License-Identifier: Apache-2.0
// What every ReduceAlgorithm promises when a rank fails, stays away, or brings something else.
#include "test/support/cases.hpp"

#include <catch2/catch.hpp>

#include <chrono>

using namespace chorale;
using namespace chorale::test;

namespace {

constexpr auto where = CallSite{"faults_test.cpp", 1};  // of two lines that are one operation

}  // namespace

TEMPLATE_LIST_TEST_CASE("a rank that fails in mid-operation is named by all others within a second",
                        "[reduce][contract]", Cases) {
  auto const ranks  = GENERATE(2, 4, 7);
  auto const failed = GENERATE(0, 1);
  auto const begin  = std::chrono::steady_clock::now();
  auto const ended  = on_ranks<typename TestType::transport>(ranks, 10'007, [&](auto& at, auto& x) {
    for (int step = 0; step < 20; ++step) {
      if (step == 11 && at.rank() == failed) {
        auto flying = typename TestType::reduce{}.start(at, x, Op::sum, Tag{}, where);
        flying.poll();
        throw Error{"the disk is full."};
      }
      typename TestType::reduce{}.all_reduce(at, x, Op::sum, Tag{}, where);
    }
  });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{1});
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto const& end = ended[static_cast<std::size_t>(rank)];
    CHECK_THAT(end.error, Catch::Contains("the disk is full"));
    CHECK(end.was_lost == (rank != failed));
    if (rank != failed) CHECK(end.lost == failed);
  }
}

TEMPLATE_LIST_TEST_CASE("a rank that stays away is named after the timeout", "[reduce][contract]", Cases) {
  auto const ended = on_ranks<typename TestType::transport>(
      2, 100,
      [](auto& at, auto& x) {
        if (at.rank() == 0) typename TestType::reduce{}.all_reduce(at, x, Op::sum, Tag{42});
      },
      typename TestType::transport{.timeout = std::chrono::milliseconds{20}});
  CHECK(ended[0].lost == 1);
  CHECK_THAT(ended[0].error,
             Catch::Contains("rank 0 waited 20 ms") && Catch::Contains("lost rank 1") && Catch::Contains("tag 42"));
  CHECK(ended[1].error == "");
}

TEMPLATE_LIST_TEST_CASE("ranks that bring different sizes get an error with both", "[reduce][contract]", Cases) {
  auto const ended = on_ranks<typename TestType::transport>(2, 100, [](auto& at, auto& x) {
    typename TestType::reduce{}.all_reduce(at, x.first(at.rank() == 0 ? 100 : 60), Op::sum, Tag{9});
  });
  for (auto const& rank : ended) {
    CHECK_THAT(rank.error, Catch::Contains("of 100 float, tag 9") && Catch::Contains("of 60 float, tag 9") &&
                               Catch::Contains("rank 0") && Catch::Contains("rank 1"));
  }
}
