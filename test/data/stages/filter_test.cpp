// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace chorale;
using Ints = std::vector<int>;

TEST_CASE("filter keeps rows, and batches, for which its function is true", "[data]") {
  auto const ten = sources::Counting{10};
  auto const odd = [](auto const& e) { return e.y[0] % 2 == 1; };
  CHECK(sources::targets(ten.filter(odd)) == Ints{1, 3, 5, 7, 9});
  CHECK(sources::targets(ten.cache().filter(odd).shuffle(1)) == Ints{1, 3, 5, 7, 9});
  CHECK(sources::targets(ten.batch(3).filter(odd).prefetch(2)) == Ints{3, 4, 5, 9});
  CHECK(sources::targets(ten.filter([](auto const&) { return false; })).empty());
  CHECK_FALSE(ten.filter(odd).size().has_value());
  STATIC_REQUIRE(sources::is_stable<decltype(ten.cache().filter(odd))>);
  STATIC_REQUIRE_FALSE(sources::is_stable<decltype(ten.filter(odd))>);
}

TEST_CASE("take and skip divide a pass, and know how many elements they have", "[data]") {
  auto const ten = sources::Counting{10};
  for (std::size_t n = 0; n <= 12; ++n) {
    auto both        = sources::targets(ten.take(n));
    auto const later = sources::targets(ten.skip(n));
    CHECK(ten.take(n).size() == both.size());
    CHECK(ten.skip(n).size() == later.size());
    CHECK(both.size() == std::min<std::size_t>(n, 10));
    both.insert(both.end(), later.begin(), later.end());
    CHECK(both == sources::in_order(10));
  }
  CHECK(sources::targets(ten.skip(2).take(3)) == Ints{2, 3, 4});
  CHECK(sources::targets(ten.batch(4).skip(1).take(1).prefetch(1)) == Ints{4, 5, 6, 7});
  STATIC_REQUIRE(sources::is_stable<decltype(ten.cache().take(3))>);
}

TEST_CASE("take reads no further than it must, so that it bounds what has no end", "[data]") {
  auto const source = sources::Counting{1'000, 5};  // row 5 would throw
  CHECK(sources::targets(source.take(5)) == sources::in_order(5));
  CHECK(source.reads() == 5);
  CHECK(sources::targets(source.take(0)).empty());
  CHECK(source.reads() == 5);
}

TEST_CASE("the shards of a pass are disjoint, and together all of it", "[data]") {
  auto const ten = sources::Counting{10};
  CHECK(sources::targets(ten.shard(3, 1)) == Ints{1, 4, 7});
  for (std::size_t const n : {1U, 2U, 3U, 4U, 10U, 11U}) {
    auto all = Ints{};
    for (std::size_t i = 0; i < n; ++i) {
      auto const part = sources::targets(ten.shard(n, i));
      CHECK(ten.shard(n, i).size() == part.size());
      all.insert(all.end(), part.begin(), part.end());
    }
    std::sort(all.begin(), all.end());
    CHECK(all == sources::in_order(10));
  }
  CHECK_THROWS_AS(ten.shard(0, 0), BadArgument);
  CHECK_THROWS_WITH(ten.shard(3, 3), Catch::Contains("no part 3 of 3"));
}

TEST_CASE("a stage that has ended stays ended", "[data]") {
  auto const check = [](auto stream) {
    auto row = Sample<float, int>{};
    while (stream.next(row)) continue;
    CHECK_FALSE(stream.next(row));
    CHECK_FALSE(stream.next(row));
  };
  auto const five = sources::Counting{5};
  check(five.take(2).stream(0));
  check(five.skip(9).stream(0));
  check(five.shard(2, 1).stream(0));
  check(five.filter([](auto const&) { return true; }).stream(0));
  check(five.concatenate(five).stream(0));
  check(five.window({.size = 2, .remainder = data::Remainder::keep}).stream(0));
}
