// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>
#include <vector>

using namespace chorale;

namespace {

std::vector<std::int64_t> values(data::Integers const& range) {
  auto stream = range.stream(0);
  auto all    = std::vector<std::int64_t>{};
  for (Sample<std::int64_t, std::int64_t> row; stream.next(row);) all.push_back(row.x[0]);
  CHECK(range.size() == all.size());
  return all;
}

}  // namespace

TEST_CASE("a range counts in steps, upwards or downwards, and stops before its end", "[data]") {
  using V = std::vector<std::int64_t>;
  CHECK(values(data::range(3)) == V{0, 1, 2});
  CHECK(values(data::range(2, 9, 3)) == V{2, 5, 8});
  CHECK(values(data::range(2, 8, 3)) == V{2, 5});
  CHECK(values(data::range(5, 0, -2)) == V{5, 3, 1});
  CHECK(values(data::range(0)).empty());
  CHECK(values(data::range(0, -3)).empty());
  CHECK(values(data::range(0, 3, -1)).empty());
  CHECK_THROWS_AS(data::range(0, 3, 0), BadArgument);
}

TEST_CASE("a range may go to the ends of 64 bits", "[data]") {
  constexpr auto low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  using V = std::vector<std::int64_t>;
  CHECK(values(data::range(high - 1, high)) == V{high - 1});
  CHECK(values(data::range(high - 3, high, 2)) == V{high - 3, high - 1});
  CHECK(values(data::range(low + 1, low, -5)) == V{low + 1});
  CHECK(values(data::range(low, high, high)) == V{low, -1, high - 1});
  CHECK(values(data::range(high, low, low)) == V{high, -1});
  CHECK(data::range(low, high).size() == ~std::size_t{0});
}

TEST_CASE("a generator makes each pass anew, and knows its epoch", "[data]") {
  auto const rows = data::from_generator(
      [](std::size_t epoch) {
        return [i = 0, epoch](std::vector<float>& x, std::vector<int>& y) mutable {
          x.assign(1, static_cast<float>(100 * epoch) + static_cast<float>(i));
          y.assign(1, static_cast<int>(100 * epoch) + i);
          return i++ < 3;
        };
      },
      3);
  CHECK(rows.size() == 3);
  CHECK(sources::targets(rows, 0) == sources::in_order(3));
  CHECK(sources::targets(rows.prefetch(2), 2) == std::vector<int>{200, 201, 202});
  CHECK(sources::targets(rows.shuffle(2, 1).repeat(2).batch(2)).size() == 6);
}

TEST_CASE("a generator is not asked again once it has said that it ended", "[data]") {
  auto const rows = data::from_generator<std::uint8_t, float>([](std::size_t) {
    return [calls = 0](std::vector<std::uint8_t>& x, std::vector<float>& y) mutable {
      x.assign(1, 1), y.assign(1, 2.0F);
      return ++calls != 2;
    };
  });
  CHECK_FALSE(rows.size().has_value());
  auto stream = rows.stream(0);
  auto row    = Sample<std::uint8_t, float>{};
  CHECK(stream.next(row));
  CHECK_FALSE(stream.next(row));
  CHECK_FALSE(stream.next(row));
}
