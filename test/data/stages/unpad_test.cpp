// SPDX-License-Identifier: Apache-2.0
// Padded fields that become ragged ones.
#include <chorale/data/dataset.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace unpad_test {

using namespace chorale;
using Catch::Matchers::Contains;

namespace {

struct Padded : Field<int, 5> {};
struct Words : Field<int, ragged> {};
struct Label : Field<int, 1> {};
struct Steps : Field<float, 3, 2> {};
struct Frames : Field<float, ragged, 2> {};

auto rows(std::vector<int> padded) {
  auto labels = std::vector<int>(padded.size() / 5);
  for (std::size_t r = 0; r < labels.size(); ++r) labels[r] = static_cast<int>(r);
  return data::from_fields<Padded, Label>(padded, labels);
}

/// The words of all rows, each with its label before it.
template <class D> std::vector<std::vector<int>> read(D const& dataset) {
  auto all    = std::vector<std::vector<int>>{};
  auto stream = dataset.stream(0);
  for (auto row = typename D::element{}; stream.next(row);) {
    auto const words = row[Words{}];
    all.push_back({row[Label{}][0]});
    all.back().insert(all.back().end(), words.begin(), words.end());
  }
  return all;
}

}  // namespace

TEST_CASE("padding at the end, or at the beginning, is left out", "[data][unpad]") {
  auto const all = rows({5, 7, 2, 0, 0, 0, 0, 0, 0, 9, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5}).unpad<Words>(Padded{});
  CHECK(read(all) == std::vector<std::vector<int>>{{0, 5, 7, 2}, {1, 9}, {2, 3}, {3, 1, 2, 3, 4, 5}});
  CHECK(all.size() == 4);
  auto const other = rows({5, 0, -1, -1, -1}).unpad<Words>(Padded{}, {.value = -1});
  CHECK(read(other) == std::vector<std::vector<int>>{{0, 5, 0}});
}

TEST_CASE("a position of several numbers is padding if all of them are", "[data][unpad]") {
  auto const steps = std::vector<float>{1, 0, 0, 2, 0, 0};
  auto stream      = data::from_fields<Steps>(steps).unpad<Frames>(Steps{}).stream(0);
  auto row         = Row<Frames>{};
  REQUIRE(stream.next(row));
  CHECK(std::vector<float>(row[Frames{}].begin(), row[Frames{}].end()) == std::vector<float>{1, 0, 0, 2});
}

TEST_CASE("a row of nothing but padding is refused, or kept without positions", "[data][unpad]") {
  auto const padded = rows({5, 7, 2, 0, 0, 0, 0, 0, 0, 0});
  CHECK_THROWS_WITH(read(padded.unpad<Words>(Padded{})),
                    Contains("row 1: field unpad_test::") &&
                        Contains("Padded has nothing but padding: all 5 "
                                 "positions are 0.") &&
                        Contains("Try: a filter that leaves such rows out, or {.empty_rows = data::EmptyRows::keep}."));
  CHECK(read(padded.unpad<Words>(Padded{}, {.empty_rows = data::EmptyRows::keep})) ==
        std::vector<std::vector<int>>{{0, 5, 7, 2}, {1}});
}

TEST_CASE("padding between positions is refused", "[data][unpad]") {
  CHECK_THROWS_WITH(read(rows({1, 2, 3, 4, 5, 5, 0, 2, 3, 0}).unpad<Words>(Padded{})),
                    Contains("row 1: field") && Contains("Padded has padding 0 at position 1, but the row goes on to "
                                                         "position 3."));
}

}  // namespace unpad_test
