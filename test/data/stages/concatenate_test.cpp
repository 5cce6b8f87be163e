// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace chorale;
using Ints = std::vector<int>;

TEST_CASE("concatenate gives one dataset, then the other, rows or batches", "[data]") {
  auto const a = sources::Counting{3}, b = sources::Counting{2};
  CHECK(sources::targets(a.concatenate(b)) == Ints{0, 1, 2, 0, 1});
  CHECK(a.concatenate(b).size() == 5);
  CHECK(sources::targets(a.batch(2).concatenate(b.batch(2)).prefetch(1)) == Ints{0, 1, 2, 0, 1});
  CHECK(sources::targets(sources::Counting{0}.concatenate(b)) == Ints{0, 1});
  STATIC_REQUIRE(sources::is_stable<decltype(a.cache().concatenate(b.cache()))>);
  STATIC_REQUIRE_FALSE(sources::is_stable<decltype(a.cache().concatenate(b))>);
  CHECK_FALSE(a.concatenate(b.filter([](auto const&) { return true; })).size().has_value());
}

TEST_CASE("both parts of a concatenation see the epoch", "[data]") {
  auto const rows = sources::Counting{20}.shuffle(20, 1);
  auto const both = rows.concatenate(rows);
  auto const once = sources::targets(rows, 3);
  auto expected   = once;
  expected.insert(expected.end(), once.begin(), once.end());
  CHECK(sources::targets(both, 3) == expected);
}

TEST_CASE("zip gives x of one dataset and x of another as targets, until either ends", "[data]") {
  auto const x      = sources::Counting{5};
  auto const labels = data::range(10, 13);
  auto const rows   = data::zip(x, labels);
  CHECK(rows.size() == 3);
  auto stream = rows.stream(0);
  auto row    = Sample<float, std::int64_t>{};
  for (int i = 0; i < 3; ++i) {
    REQUIRE(stream.next(row));
    CHECK((row.x.size() == 2 && row.x[0] == static_cast<float>(i)));
    CHECK((row.y.size() == 1 && row.y[0] == 10 + i));
  }
  CHECK_FALSE(stream.next(row));
  auto batches = rows.shuffle(2, 1).batch(3).prefetch(1).stream(0);
  auto batch   = BasicBatch<float, std::int64_t>{};
  REQUIRE(batches.next(batch));
  for (std::size_t i = 0; i < 3; ++i) CHECK(static_cast<std::int64_t>(batch.x[2 * i]) + 10 == batch.y[i]);
  STATIC_REQUIRE(sources::is_stable<decltype(data::zip(x.cache(), x.cache()))>);
  STATIC_REQUIRE_FALSE(sources::is_stable<decltype(rows)>);
}

TEST_CASE("interleave takes blocks in turns, and the next dataset takes the place of one that has ended", "[data]") {
  auto const from = [](std::size_t begin, std::size_t n) { return sources::Counting{100}.skip(begin).take(n); };
  auto const all  = std::vector{from(0, 5), from(20, 3), from(40, 0), from(60, 2)};
  CHECK(sources::targets(data::interleave(all)) == Ints{0, 1, 2, 3, 4, 20, 21, 22, 60, 61});
  CHECK(sources::targets(data::interleave(all, {.cycle = 2})) == Ints{0, 20, 1, 21, 2, 22, 3, 4, 60, 61});
  CHECK(sources::targets(data::interleave(all, {.cycle = 2, .block = 2})) == Ints{0, 1, 20, 21, 2, 3, 22, 4, 60, 61});
  CHECK(sources::targets(data::interleave(all, {.cycle = 9, .block = 9})) == Ints{0, 1, 2, 3, 4, 20, 21, 22, 60, 61});
  CHECK(data::interleave(all, {.cycle = 3}).size() == 10);
  CHECK_THROWS_AS(data::interleave(all, {.cycle = 0}), BadArgument);
  CHECK_THROWS_AS(data::interleave(all, {.block = 0}), BadArgument);
  auto const kept = std::vector{from(0, 5).cache(), from(20, 3).cache()};
  STATIC_REQUIRE(sources::is_stable<decltype(data::interleave(kept))>);
  CHECK(sources::targets(data::interleave(kept, {.cycle = 2}).shuffle(1)) == Ints{0, 20, 1, 21, 2, 22, 3, 4});
}

TEST_CASE("interleaved rows may be prefetched, each dataset by its own thread, in the same order", "[data]") {
  auto plain = std::vector<sources::Counting>{};
  auto ahead = std::vector<decltype(sources::Counting{1}.prefetch(1))>{};
  for (std::size_t i = 0; i < 7; ++i) plain.emplace_back(13 * i % 40), ahead.push_back(plain.back().prefetch(3));
  auto const expected = sources::targets(data::interleave(plain, {.cycle = 3, .block = 4}));
  for (int i = 0; i < 10; ++i) CHECK(sources::targets(data::interleave(ahead, {.cycle = 3, .block = 4})) == expected);
}
