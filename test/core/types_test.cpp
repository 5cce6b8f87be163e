// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/types.hpp>

#include <catch2/catch.hpp>

using namespace chorale;

TEST_CASE("shares are disjoint, in order, complete, and differ by at most one", "[core][unit]") {
  for (std::size_t total : {0U, 1U, 7U, 8U, 60'000U}) {
    for (int n : {1, 2, 3, 8}) {
      auto least = total, most = std::size_t{0}, next = std::size_t{0};
      for (int i = 0; i < n; ++i) {
        auto const part = share(total, i, n);
        REQUIRE(part.begin == next);
        next  = part.end;
        least = std::min(least, part.size());
        most  = std::max(most, part.size());
      }
      CHECK(next == total);
      CHECK(most - least <= 1);
    }
  }
}

TEST_CASE("the last part of the largest total ends there without overflow", "[core][unit]") {
  constexpr auto total = ~std::size_t{0};
  CHECK(share(total, 6, 7).end == total);
}

TEST_CASE("a local batch times the replicas is the global batch, from both sides", "[core][unit]") {
  CHECK((LocalBatch{64} * 4).rows == 256);
  CHECK((4 * LocalBatch{64}).rows == 256);
}

TEST_CASE("a deadline that is never does not pass, and one of no time has passed", "[core][unit]") {
  CHECK_FALSE(Deadline::never().passed());
  CHECK(Deadline::after(std::chrono::nanoseconds{0}).passed());
}
