// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <chorale/data/formats/skip_broken.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

/// Every fifth row is broken; of the others, the place and its random number are told.
struct Picky {
  void operator()(Sample<float, int> const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) const {
    if (row.y[0] % 5 == 2) throw BadFile{"row " + std::to_string(row.y[0]) + " is broken.", "another."};
    x.assign(1, at.random(Seed{1}).uniform(0)), y.assign({row.y[0], static_cast<int>(at.row)});
  }
};

template <class D> std::vector<std::pair<float, std::vector<int>>> pass(D const& rows) {
  auto stream = rows.stream(0);
  auto all    = std::vector<std::pair<float, std::vector<int>>>{};
  for (Sample<float, int> row; stream.next(row);) all.push_back({row.x[0], {row.y.begin(), row.y.end()}});
  return all;
}

}  // namespace

TEST_CASE("rows that a map cannot read end the pass, or are left out and counted", "[data][skipped]") {
  auto const rows    = sources::Counting{103};
  auto const skipped = std::make_shared<data::Skipped>();
  auto const lenient = data::skip_broken(Picky{}, skipped);
  CHECK_THROWS_AS(pass(rows.map(Picky{})), BadFile);
  CHECK_THROWS_AS(pass(rows.map(Picky{}, {.threads = 2})), BadFile);

  auto const expected = pass(rows.map(lenient));
  CHECK(expected.size() == 82);
  CHECK(skipped->records() == 21);
  CHECK(skipped->rests() == 0);
  CHECK(skipped->first().find("row 2 is broken") != std::string::npos);
  for (auto const& [noise, place] : expected) {
    CHECK(place.at(0) % 5 != 2);
    CHECK(place.at(0) == place.at(1));  // what is left out moves no other row to another place
  }
  for (std::size_t const threads : {1U, 2U, 8U})
    for (std::size_t const ahead : {0U, 1U, 100U}) {
      auto const before = skipped->records();
      CHECK(pass(rows.map(lenient, {.threads = threads, .ahead = ahead})) == expected);
      CHECK(skipped->records() == before + 21);
    }
  CHECK_FALSE(rows.map(lenient).size().has_value());
  CHECK_FALSE(rows.map(lenient, {}).size().has_value());
}

TEST_CASE("batches behind rows that are left out are full", "[data][skipped]") {
  auto const skipped = std::make_shared<data::Skipped>();
  auto const batches = sources::Counting{103}.map(data::skip_broken(Picky{}, skipped), {.threads = 3}).batch(10);
  auto stream        = batches.stream(0);
  auto sizes         = std::vector<std::size_t>{};
  for (Batch batch; stream.next(batch);) sizes.push_back(batch.rows);
  CHECK(sizes == std::vector<std::size_t>{10, 10, 10, 10, 10, 10, 10, 10, 2});
}

TEST_CASE("a function that returns false makes a filter of map", "[data][skipped]") {
  auto const even = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
    return row.y[0] % 2 == 0;
  };
  auto const rows = sources::Counting{20};
  auto const same = sources::targets(rows.filter([](auto const& row) { return row.y[0] % 2 == 0; }));
  CHECK(sources::targets(rows.map(even)) == same);
  CHECK(sources::targets(rows.map(even, {.threads = 2})) == same);
}
