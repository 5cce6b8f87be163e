// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <chorale/data/validation_split.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace chorale;

TEST_CASE("shuffle gives every element exactly once", "[data]") {
  for (std::size_t const buffer : std::vector<std::size_t>{1, 2, 7, 99, 100, 1'000}) {
    auto shuffled = sources::targets(sources::Counting{100}.shuffle(buffer, 1));
    std::sort(shuffled.begin(), shuffled.end());
    CHECK(shuffled == sources::in_order(100));
  }
}

TEST_CASE("the order of a shuffle is a function of seed and epoch", "[data]") {
  auto const rows  = sources::Counting{100};
  auto const order = sources::targets(rows.shuffle(20, 1), 0);
  CHECK(order == sources::targets(rows.shuffle(20, 1), 0));
  CHECK(order != sources::targets(rows.shuffle(20, 1), 1));
  CHECK(order != sources::targets(rows.shuffle(20, 2), 0));
  CHECK(order != sources::in_order(100));
}

TEST_CASE("views and copies are shuffled alike", "[data]") {
  auto const rows = sources::Counting{100};
  STATIC_REQUIRE(sources::is_stable<decltype(rows.cache().shuffle(20))>);
  STATIC_REQUIRE_FALSE(sources::is_stable<decltype(rows.shuffle(20))>);
  CHECK(sources::targets(rows.cache().shuffle(20, 1)) == sources::targets(rows.shuffle(20, 1)));
}

TEST_CASE("a shuffled stable row is the source's own memory", "[data]") {
  auto const x = std::vector<float>{1, 2, 3}, none = std::vector<float>{};
  auto stream = data::from_tensors(Span<float const>{x}, Span<float const>{none}, 1).shuffle(2).stream(0);
  auto row    = Sample<float, float>{};
  REQUIRE(stream.next(row));
  CHECK((row.x.data() >= x.data() && row.x.data() < x.data() + x.size()));
}

TEST_CASE("an element comes at most a buffer too early", "[data]") {
  auto const order = sources::targets(sources::Counting{200}.shuffle(10, 1));
  for (int place = 0; place < 200; ++place) CHECK(order[static_cast<std::size_t>(place)] < place + 10);
}

TEST_CASE("rows that are shuffled in one order and then divided are on one side in every epoch", "[data]") {
  auto const rows  = sources::Counting{100};
  auto const fixed = rows.shuffle(100, 1, data::Order::fixed);
  CHECK(sources::targets(fixed, 0) == sources::targets(rows.shuffle(100, 1), 0));
  CHECK(sources::targets(fixed, 0) == sources::targets(fixed, 7));
  CHECK(sources::targets(fixed.repeat(2)) == sources::targets(fixed.concatenate(fixed)));
  auto const check = [](auto const& one, auto const& others) {
    auto const held = sources::targets(one, 0);
    for (std::size_t epoch = 0; epoch < 4; ++epoch) {
      auto all = sources::targets(one, epoch), rest = sources::targets(others, epoch);
      std::ranges::sort(all);
      CHECK(all == [&] {
        auto sorted = held;
        std::ranges::sort(sorted);
        return sorted;
      }());
      all.insert(all.end(), rest.begin(), rest.end());
      std::ranges::sort(all);
      CHECK(all == sources::in_order(100));
    }
  };
  check(fixed.take(20), fixed.skip(20));
  check(fixed.take(20).shuffle(20), fixed.skip(20).shuffle(80));
  check(fixed.shard(2, 0), fixed.shard(2, 1));
  check(rows.shuffle(100, 1).cache().take(20), rows.shuffle(100, 1).cache().skip(20));
  CHECK_THROWS_WITH(rows.shuffle(9, 1, data::Order::any), Catch::Contains("shuffle gives each epoch another order"));
}

TEST_CASE("rows whose order depends on an option are not divided", "[data]") {
  auto const rows    = sources::Counting{10};
  auto const refused = [](auto divide) {
    CHECK_THROWS_WITH(divide(), Catch::Contains("take, skip, shard and validation_split divide rows by their places"));
  };
  auto const files = data::interleave(std::vector{rows, rows}, {.cycle = 2, .block = 2, .shuffle = Seed{1}});
  auto const same  = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
  };
  auto const any = rows.map(same, {.threads = 2, .order = data::Order::any});
  refused([&] { files.take(4); });
  refused([&] { files.map(same).prefetch(2).skip(4); });
  refused([&] { rows.concatenate(files).shard(2, 1); });
  refused([&] { any.filter([](auto const&) { return true; }).skip(4); });
  refused([&] { any.window({.size = 2}).take(1); });
  refused([&] { data::zip(any, any).take(1); });
  refused([&] { data::validation_split(any.shuffle(9, 1, data::Order::fixed), 0.5); });
  CHECK(sources::targets(files.cache().take(4)).size() == 4);
  CHECK(sources::targets(any.cache().skip(4)).size() == 6);
  CHECK(sources::targets(files.batch(2).take(2)).size() == 4);  // so many steps, of any rows
  CHECK(sources::targets(rows.map(same, {.threads = 2}).take(3)).size() == 3);
}

TEST_CASE("a full buffer puts every element everywhere", "[data]") {
  // 6 elements, 6'000 passes: each of 36 (element, place) pairs is met 1'000 times, standard deviation 29.
  auto seen = std::vector<int>(36);
  for (std::size_t epoch = 0; epoch < 6'000; ++epoch) {
    auto const order = sources::targets(sources::Counting{6}.shuffle(6, 1), epoch);
    for (std::size_t place = 0; place < 6; ++place) ++seen[place * 6 + static_cast<std::size_t>(order[place])];
  }
  CHECK(*std::min_element(seen.begin(), seen.end()) > 850);
  CHECK(*std::max_element(seen.begin(), seen.end()) < 1'150);
}

TEST_CASE("batches can be shuffled", "[data]") {
  auto all = sources::targets(sources::Counting{20}.batch(4).shuffle(3, 1));
  CHECK(all != sources::in_order(20));
  for (std::size_t i = 0; i < 20; ++i) CHECK(all[i] % 4 == static_cast<int>(i % 4));  // rows stay in their batch
}

TEST_CASE("a stream that has ended stays ended", "[data]") {
  auto stream = sources::Counting{2}.shuffle(5).stream(0);
  auto row    = Sample<float, int>{};
  REQUIRE((stream.next(row) && stream.next(row)));
  CHECK_FALSE(stream.next(row));
  CHECK_FALSE(stream.next(row));
}

TEST_CASE("a shuffle without a buffer is refused", "[data]") {
  CHECK_THROWS_AS(sources::Counting{2}.shuffle(0), BadArgument);
}
