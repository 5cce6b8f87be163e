// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace chorale;

namespace {

std::vector<std::size_t> rows_of_batches(auto const& dataset) {
  auto stream = dataset.stream(0);
  auto rows   = std::vector<std::size_t>{};
  for (Batch batch; stream.next(batch);) rows.push_back(batch.rows);
  return rows;
}

}  // namespace

TEST_CASE("the last batch of a pass is smaller, or left out when asked", "[data]") {
  auto const ten = sources::Counting{10};
  CHECK(rows_of_batches(ten.batch(4)) == std::vector<std::size_t>{4, 4, 2});
  CHECK(rows_of_batches(ten.batch(4, data::Remainder::drop)) == std::vector<std::size_t>{4, 4});
  CHECK(rows_of_batches(ten.batch(5)) == std::vector<std::size_t>{5, 5});
  CHECK(rows_of_batches(ten.batch(11, data::Remainder::drop)).empty());
  CHECK(rows_of_batches(sources::Counting{0}.batch(4)).empty());
}

TEST_CASE("the number of batches is known before a pass", "[data]") {
  auto const ten = sources::Counting{10};
  CHECK(ten.batch(4).size() == 3);
  CHECK(ten.batch(4, data::Remainder::drop).size() == 2);
  CHECK(ten.batch(5).size() == 2);
}

TEST_CASE("batches have all rows in order, from stable rows and from others", "[data]") {
  CHECK(sources::targets(sources::Counting{10}.batch(4)) == sources::in_order(10));
  CHECK(sources::targets(sources::Counting{10}.cache().batch(4)) == sources::in_order(10));
}

TEST_CASE("all batches of a stream lie in the same aligned memory", "[data]") {
  auto stream = sources::Counting{10}.batch(4).stream(0);
  auto first = Batch{}, later = Batch{};
  REQUIRE(stream.next(first));
  CHECK(reinterpret_cast<std::uintptr_t>(first.x.data()) % 64 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(first.y.data()) % 64 == 0);
  while (stream.next(later)) CHECK((later.x.data() == first.x.data() && later.y.data() == first.y.data()));
  CHECK(later.rows == 2);
  CHECK(later.x.size() == 4);
}

TEST_CASE("a batch far larger than the data takes no more memory than the data", "[data]") {
  CHECK(rows_of_batches(sources::Counting{3}.batch(2'000'000'000)) == std::vector<std::size_t>{3});
}

TEST_CASE("rows of different widths cannot be in one batch", "[data]") {
  auto const growing = sources::Counting{3}.map([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.resize(static_cast<std::size_t>(row.y[0]) + 1);
    y.assign(1, 0);
  });
  CHECK_THROWS_WITH(rows_of_batches(growing.batch(2)),
                    Catch::Contains("row 1 has 2 numbers") && Catch::Contains("have 1 numbers"));
}

TEST_CASE("a batch without rows is refused", "[data]") {
  CHECK_THROWS_WITH(sources::Counting{3}.batch(0), Catch::Contains("at least one row, got 0"));
  CHECK_THROWS_AS(sources::Counting{3}.batch(-1), BadArgument);
}
