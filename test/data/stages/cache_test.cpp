// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <chorale/core/threads.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <vector>

using namespace chorale;

TEST_CASE("cache runs what is before it once, for all passes and copies", "[data]") {
  auto const source = sources::Counting{10};
  auto const cached = source.cache();
  auto const copy   = cached;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    CHECK(sources::targets(cached, epoch) == sources::in_order(10));
    CHECK(sources::targets(copy, epoch) == sources::in_order(10));
  }
  CHECK(source.reads() == 10);
}

TEST_CASE("nothing is read before the first row is asked for", "[data]") {
  auto const source = sources::Counting{10};
  auto stream       = source.cache().stream(0);
  CHECK(source.reads() == 0);
  auto row = Sample<float, int>{};
  REQUIRE(stream.next(row));
  CHECK(row.y[0] == 0);
}

TEST_CASE("cached rows lie one after another, and later passes hand out the same memory", "[data]") {
  auto const cached = sources::Counting{10}.cache();
  auto rows         = std::vector<Sample<float, int>>{};
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    auto stream = cached.stream(epoch);
    for (Sample<float, int> row; stream.next(row);) rows.push_back(row);
  }
  REQUIRE(rows.size() == 20);
  for (std::size_t i = 1; i < 10; ++i) CHECK(rows[i].x.data() == rows[0].x.data() + 2 * i);
  for (std::size_t i = 0; i < 10; ++i) CHECK(rows[i + 10].x.data() == rows[i].x.data());
  STATIC_REQUIRE(sources::is_stable<decltype(cached)>);
}

TEST_CASE("cached rows outlive the dataset as long as a stream is there", "[data]") {
  auto stream = sources::Counting{3}.cache().stream(0);
  auto row    = Sample<float, int>{};
  REQUIRE((stream.next(row) && stream.next(row)));
  CHECK(row.x[1] == -1.0F);
}

TEST_CASE("what is kept is pass 0, whichever pass is read first", "[data]") {
  auto const shuffled = sources::Counting{50}.shuffle(50, 3);
  CHECK(sources::targets(shuffled.cache(), 7) == sources::targets(shuffled, 0));
  CHECK(sources::targets(shuffled, 7) != sources::targets(shuffled, 0));
}

TEST_CASE("threads that read a cache at the same time all get every row", "[data]") {
  auto const source = sources::Counting{500};
  auto const cached = source.cache();
  auto good         = std::atomic<int>{0};
  {
    auto threads = std::vector<NamedThread>{};
    for (int i = 0; i < 4; ++i)
      threads.emplace_back("reader", [&] { good += sources::targets(cached) == sources::in_order(500); });
  }
  CHECK(good == 4);
  CHECK(source.reads() == 500);
}

TEST_CASE("a pass that fails is not kept", "[data]") {
  auto const source = sources::Counting{10, 4};
  auto const cached = source.cache();
  CHECK_THROWS_WITH(sources::targets(cached), "row 4 is broken");
  CHECK_THROWS_WITH(sources::targets(cached), "row 4 is broken");
  CHECK(source.reads() == 8);  // four rows each time, none of them kept
}

TEST_CASE("rows of different widths cannot be cached", "[data]") {
  auto const growing = sources::Counting{3}.map([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.resize(static_cast<std::size_t>(row.y[0]) / 2 + 1);
    y.assign(1, 0);
  });
  CHECK_THROWS_WITH(sources::targets(growing.cache()),
                    Catch::Contains("row 2 has 2 numbers") && Catch::Contains("have 1 numbers"));
}

TEST_CASE("a dataset without rows can be cached", "[data]") {
  CHECK(sources::targets(sources::Counting{0}.cache()).empty());
}
