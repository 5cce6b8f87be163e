// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <vector>

using namespace chorale;

TEST_CASE("repeat is that many passes, one after another", "[data]") {
  auto const twice = sources::Counting{3}.repeat(2);
  CHECK(sources::targets(twice) == std::vector<int>{0, 1, 2, 0, 1, 2});
  CHECK(twice.size() == 6);
}

TEST_CASE("every pass within a repeat has its own order, and epochs go on where it ends", "[data]") {
  auto const shuffled = sources::Counting{20}.shuffle(20, 1);
  auto expected       = sources::targets(shuffled, 4);
  for (int const y : sources::targets(shuffled, 5)) expected.push_back(y);
  CHECK(sources::targets(shuffled.repeat(2), 2) == expected);
  CHECK(sources::targets(shuffled, 4) != sources::targets(shuffled, 5));
}

TEST_CASE("a batch after repeat may have rows of two passes", "[data]") {
  CHECK(sources::Counting{3}.repeat(2).batch(4).size() == 2);
  CHECK(sources::targets(sources::Counting{3}.cache().repeat(2).batch(4)) == std::vector<int>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("passes without rows end", "[data]") {
  CHECK(sources::targets(sources::Counting{0}.repeat(5)).empty());
}

TEST_CASE("repeat refuses no passes, and does not count further than it can", "[data]") {
  CHECK_THROWS_AS(sources::Counting{3}.repeat(0), BadArgument);
  CHECK_FALSE(sources::Counting{3}.repeat(std::numeric_limits<std::size_t>::max() / 2).size().has_value());
}

TEST_CASE("passes without end are there in every epoch", "[data]") {
  for (std::size_t const epoch : {0U, 1U, 2U}) {
    auto stream = sources::Counting{3}.repeat(std::numeric_limits<std::size_t>::max()).stream(epoch);
    auto row    = Sample<float, int>{};
    for (int i = 0; i < 7; ++i) {
      REQUIRE(stream.next(row));
      CHECK(row.y[0] == i % 3);
    }
  }
}
