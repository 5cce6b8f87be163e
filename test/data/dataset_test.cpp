// SPDX-License-Identifier: Apache-2.0
#include "sources.hpp"

#include <chorale/core/error.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace chorale;
using Catch::Matchers::Contains;

TEST_CASE("the parts of a batch are disjoint, in order, and together the batch", "[data]") {
  auto const x     = std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};  // (5, 2)
  auto const y     = std::vector<int>{0, 1, 2, 3, 4};
  auto const batch = Batch{.x = x, .y = y, .rows = 5};
  for (int n : {1, 2, 3, 5, 8}) {
    auto seen = std::vector<float>{};
    auto rows = std::size_t{0};
    for (int i = 0; i < n; ++i) {
      auto const part = batch.part(i, n);
      CHECK(part.first_row == rows);
      CHECK(part.y.size() == part.rows);
      if (part.rows > 0) CHECK(part.y[0] == static_cast<int>(rows));
      seen.insert(seen.end(), part.x.begin(), part.x.end());
      rows += part.rows;
    }
    CHECK(rows == 5);
    CHECK(seen == x);
  }
}

TEST_CASE("a part of a part knows its place in the global batch", "[data]") {
  auto const x = std::vector<float>(8);
  auto const y = std::vector<int>(8);
  CHECK(Batch{.x = x, .y = y, .rows = 8}.part(1, 2).part(1, 2).first_row == 6);
}

TEST_CASE("a part of an empty batch is empty", "[data]") {
  CHECK(Batch{}.part(0, 2).rows == 0);
  CHECK(Batch{}.part(1, 2).x.empty());
}

TEST_CASE("a dataset made of vectors owns its rows", "[data]") {
  auto const rows = data::from_tensors(std::vector<float>{1, 2, 3, 4, 5, 6}, std::vector<int>{7, 8, 9}, 2);
  auto stream     = rows.stream(0);
  auto first = Sample<float, int>{}, second = first, third = first;
  REQUIRE((stream.next(first) && stream.next(second) && stream.next(third)));
  CHECK_FALSE(stream.next(third));
  CHECK(rows.size() == 3);
  CHECK((first.x[0] == 1 && first.x[1] == 2 && first.y[0] == 7));  // still valid: these rows stay
  CHECK((third.x[0] == 5 && third.x[1] == 6 && third.y[0] == 9));
  STATIC_REQUIRE(sources::is_stable<decltype(rows)>);
}

TEST_CASE("a dataset of spans looks at the caller's rows", "[data]") {
  auto x          = std::vector<double>{1, 2};
  auto const y    = std::vector<float>{3, 4};
  auto const rows = data::from_tensors(Span<double>{x}, Span<float const>{y}, 1);
  auto stream     = rows.stream(0);
  auto row        = Sample<double, float>{};
  REQUIRE(stream.next(row));
  CHECK(row.x.data() == x.data());
}

TEST_CASE("targets of a regression may be numbers of any width", "[data]") {
  auto const rows = data::from_tensors(std::vector<float>{1, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}, 1).batch(2);
  auto stream     = rows.stream(0);
  auto batch      = BasicBatch<float, float>{};
  REQUIRE(stream.next(batch));
  CHECK(std::vector<float>(batch.y.begin(), batch.y.end()) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(batch.part(1, 2).y.size() == 3);
}

TEST_CASE("tensors that are not whole rows are refused with both numbers", "[data]") {
  auto const make = [](std::size_t x, std::size_t y, std::size_t width) {
    return data::from_tensors(std::vector<float>(x), std::vector<int>(y), width);
  };
  CHECK_THROWS_WITH(make(7, 3, 2), Contains("7 numbers") && Contains("rows of 2"));
  CHECK_THROWS_WITH(make(6, 4, 2), Contains("4 targets") && Contains("3 rows"));
  CHECK_THROWS_AS(make(6, 3, 0), BadArgument);
  CHECK_THROWS_AS(make(0, 3, 2), BadArgument);
  CHECK(make(0, 0, 2).size() == 0);
}

TEST_CASE("a whole pipeline gives every row once per pass and the same pass twice", "[data]") {
  auto const rows = sources::Counting{100}.cache().shuffle(30, 5).batch(7).repeat(2).prefetch(2);
  CHECK(rows.size() == 30);
  auto all         = sources::targets(rows, 3);
  auto const again = sources::targets(rows, 3);
  CHECK(all == again);
  std::sort(all.begin(), all.end());
  auto twice = sources::in_order(100);
  for (int i = 0; i < 100; ++i) twice.push_back(i);
  std::sort(twice.begin(), twice.end());
  CHECK(all == twice);
}
