// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace chorale;
using data::Remainder;
using Windows = std::vector<std::vector<int>>;

namespace {

Windows windows(auto const& rows) {
  auto stream = rows.stream(0);
  auto all    = Windows{};
  for (Sample<float, int> row; stream.next(row);) {
    all.emplace_back(row.y.begin(), row.y.end());
    REQUIRE(row.x.size() == 2 * row.y.size());
    for (std::size_t i = 0; i < row.y.size(); ++i) CHECK(row.x[2 * i + 1] == -static_cast<float>(row.y[i]));
  }
  CHECK(rows.size() == all.size());
  return all;
}

/// Row i has i % 3 numbers in x, all i, and one target.
auto uneven(std::size_t n) {
  return sources::Counting{n}.map([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(static_cast<std::size_t>(row.y[0]) % 3 + 1, static_cast<float>(row.y[0]));
    y.assign(1, row.y[0]);
  });
}

}  // namespace

TEST_CASE("a window makes one row of several", "[data]") {
  auto const seven = sources::Counting{7};
  CHECK(windows(seven.window({.size = 3})) == Windows{{0, 1, 2}, {3, 4, 5}});
  CHECK(windows(seven.window({.size = 3, .remainder = Remainder::keep})) == Windows{{0, 1, 2}, {3, 4, 5}, {6}});
  CHECK(windows(seven.window({.size = 3, .shift = 2})) == Windows{{0, 1, 2}, {2, 3, 4}, {4, 5, 6}});
  CHECK(windows(seven.window({.size = 2, .shift = 1, .stride = 3})) == Windows{{0, 3}, {1, 4}, {2, 5}, {3, 6}});
  CHECK(windows(seven.window({.size = 2, .shift = 4})) == Windows{{0, 1}, {4, 5}});
  CHECK(windows(seven.window({.size = 2, .shift = 3, .remainder = Remainder::keep})) == Windows{{0, 1}, {3, 4}, {6}});
  CHECK(windows(seven.window({.size = 8})).empty());
  CHECK(windows(sources::Counting{0}.window({.size = 1})).empty());
}

TEST_CASE("windows of rows that stay and of rows that do not are the same, for all sizes", "[data]") {
  for (std::size_t size = 1; size <= 4; ++size)
    for (std::size_t shift = 1; shift <= 6; ++shift)
      for (std::size_t stride = 1; stride <= 3; ++stride)
        for (auto const remainder : {Remainder::keep, Remainder::drop}) {
          auto const how   = data::Window{size, shift, stride, remainder};
          auto expected    = Windows{};
          auto const reach = (size - 1) * stride + 1;
          for (std::size_t at = 0; at < 17; at += shift) {
            if (at + reach > 17 && remainder == Remainder::drop) break;
            auto& window = expected.emplace_back();
            for (std::size_t i = 0; i < size && at + i * stride < 17; ++i)
              window.push_back(static_cast<int>(at + i * stride));
          }
          CHECK(windows(sources::Counting{17}.window(how)) == expected);
          CHECK(windows(sources::Counting{17}.cache().window(how)) == expected);
        }
}

TEST_CASE("windows that make no sense are refused", "[data]") {
  CHECK_THROWS_AS(sources::Counting{7}.window({.size = 0}), BadArgument);
  CHECK_THROWS_AS(sources::Counting{7}.window({.stride = 0}), BadArgument);
  constexpr auto many = std::size_t{1} << 40;
  CHECK_THROWS_AS(sources::Counting{7}.window({.size = many, .stride = many}), BadArgument);
}

TEST_CASE("a padded batch is as wide as its widest row", "[data]") {
  auto stream  = uneven(7).padded_batch(3, {.x = -1}).prefetch(2).stream(0);
  auto batch   = Batch{};
  auto const x = [&] { return std::vector<float>(batch.x.begin(), batch.x.end()); };
  REQUIRE(stream.next(batch));
  CHECK(batch.rows == 3);
  CHECK(x() == std::vector<float>{0, -1, -1, 1, 1, -1, 2, 2, 2});
  CHECK(std::vector<int>(batch.y.begin(), batch.y.end()) == std::vector<int>{0, 1, 2});
  REQUIRE(stream.next(batch));
  REQUIRE(stream.next(batch));
  CHECK(batch.rows == 1);
  CHECK(x() == std::vector<float>{6});
  CHECK_FALSE(stream.next(batch));
}

TEST_CASE("a padded batch may have a fixed width, which rows must not exceed", "[data]") {
  auto const rows = uneven(7).cache().filter([](auto const&) { return true; });
  CHECK_THROWS_AS(sources::targets(rows), BadArgument);  // cache wants rows of one width
  auto stream = uneven(4).padded_batch(2, {.width = 4, .targets = 2, .x = 0.5, .y = -1}, Remainder::drop).stream(0);
  auto batch  = Batch{};
  REQUIRE((stream.next(batch) && stream.next(batch)));
  CHECK(std::vector<float>(batch.x.begin(), batch.x.end()) == std::vector<float>{2, 2, 2, .5F, 3, .5F, .5F, .5F});
  CHECK(std::vector<int>(batch.y.begin(), batch.y.end()) == std::vector<int>{2, -1, 3, -1});
  CHECK_FALSE(stream.next(batch));
  auto narrow = uneven(7).padded_batch(2, {.width = 2}).stream(0);
  REQUIRE(narrow.next(batch));
  CHECK_THROWS_WITH(narrow.next(batch), Catch::Contains("row 2 has 3 numbers, but batches are padded to 2"));
  CHECK(uneven(7).padded_batch(3).size() == 3);
  CHECK(uneven(7).padded_batch(3, {}, Remainder::drop).size() == 2);
  CHECK_THROWS_AS(uneven(7).padded_batch(0), BadArgument);
}

TEST_CASE("rows that are equally wide are batched the same with and without padding", "[data]") {
  auto const rows = sources::Counting{50}.cache().shuffle(20, 1);
  CHECK(sources::targets(rows.padded_batch(7), 2) == sources::targets(rows.batch(7), 2));
}
