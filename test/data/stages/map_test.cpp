// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace chorale;

TEST_CASE("scale makes pixels numbers from 0 to 1 and labels ints", "[data]") {
  auto const rows = data::from_tensors(std::vector<std::uint8_t>{0, 51, 255}, std::vector<std::uint8_t>{9}, 3);
  auto scaled     = rows.map(data::scale).stream(0);
  auto row        = Sample<float, int>{};
  REQUIRE(scaled.next(row));
  CHECK(std::vector<float>(row.x.begin(), row.x.end()) == std::vector<float>{0.0F, 51.0F / 255.0F, 1.0F});
  CHECK(row.y[0] == 9);
  CHECK_FALSE(scaled.next(row));
}

TEST_CASE("a function of one's own may change type and width", "[data]") {
  auto const sums = sources::Counting{3}.map<double, float>(
      [](Sample<float, int> const& row, std::vector<double>& x, std::vector<float>& y) {
        x.assign(1, static_cast<double>(row.x[0]) + 0.5);
        y.assign(2, static_cast<float>(row.y[0]));
      });
  auto stream = sums.stream(0);
  auto row    = Sample<double, float>{};
  for (int i = 0; i < 3; ++i) {
    REQUIRE(stream.next(row));
    CHECK(row.x.size() == 1);
    CHECK(row.x[0] == i + 0.5);
    CHECK((row.y.size() == 2 && row.y[1] == static_cast<float>(i)));
  }
  CHECK_FALSE(stream.next(row));
}

TEST_CASE("a function that asks for it learns epoch and row", "[data]") {
  auto const where = [](auto const&, std::vector<float>& x, std::vector<int>& y, data::Place at) {
    x.assign(1, static_cast<float>(at.epoch));
    y.assign(1, static_cast<int>(at.row));
  };
  auto const placed = sources::Counting{2}.map(where);
  auto stream       = placed.stream(4);
  auto row          = Sample<float, int>{};
  REQUIRE((stream.next(row) && stream.next(row)));
  CHECK(row.x[0] == 4.0F);
  CHECK(row.y[0] == 1);
}

TEST_CASE("map keeps the number of rows and their order", "[data]") {
  auto const same = sources::Counting{5}.map([](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(row.x.begin(), row.x.end());
    y.assign(row.y.begin(), row.y.end());
  });
  CHECK(same.size() == 5);
  CHECK(sources::targets(same) == sources::in_order(5));
  STATIC_REQUIRE_FALSE(sources::is_stable<decltype(same)>);
}
