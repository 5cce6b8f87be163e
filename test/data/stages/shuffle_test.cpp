// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

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
  auto stream  = data::from_tensors(Span<float const>{x}, Span<float const>{none}, 1).shuffle(2).stream(0);
  auto row     = Sample<float, float>{};
  REQUIRE(stream.next(row));
  CHECK((row.x.data() >= x.data() && row.x.data() < x.data() + x.size()));
}

TEST_CASE("an element comes at most a buffer too early", "[data]") {
  auto const order = sources::targets(sources::Counting{200}.shuffle(10, 1));
  for (int place = 0; place < 200; ++place) CHECK(order[static_cast<std::size_t>(place)] < place + 10);
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
  for (std::size_t i = 0; i < 20; ++i) CHECK(all[i] % 4 == static_cast<int>(i % 4));       // rows stay in their batch
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
