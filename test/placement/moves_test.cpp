// SPDX-License-Identifier: Apache-2.0
#include <chorale/placement/moves.hpp>

#include <catch2/catch.hpp>

#include <algorithm>

#include <cstddef>
#include <vector>

using namespace chorale;
using namespace chorale::placement;

namespace {

using Layouts = std::vector<std::vector<Held>>;

std::vector<Held> all(std::size_t n) { return {{0, {0, n}}}; }

Layouts shards(std::size_t n, int world) {
  auto layouts = Layouts{};
  for (int rank = 0; rank < world; ++rank) layouts.push_back({{0, share(n, rank, world)}});
  return layouts;
}

/// How often each rank of the new layout gets each element, and how many elements come from another rank's memory.
struct Counted {
  std::vector<std::vector<int>> times;
  std::size_t sent = 0;
};
Counted count(Layouts const& before, Layouts const& after, std::vector<int> const& at, std::size_t n) {
  auto counted = Counted{std::vector<std::vector<int>>(after.size(), std::vector<int>(n)), 0};
  for (auto const& move : moves(before, after, at)) {
    for (auto i = move.range.begin; i < move.range.end; ++i) ++counted.times[static_cast<std::size_t>(move.to)][i];
    counted.sent += at[static_cast<std::size_t>(move.from)] == move.to ? 0 : move.range.size();
    auto const& held = before[static_cast<std::size_t>(move.from)];
    CHECK(std::ranges::any_of(held, [&](Held const& one) {
      return one.array == move.array && one.range.begin <= move.range.begin && move.range.end <= one.range.end;
    }));
  }
  return counted;
}

}  // namespace

TEST_CASE("each rank gets what it shall have once, and nothing is sent that is there", "[placement][moves]") {
  constexpr auto n = std::size_t{101};
  for (int from = 1; from <= 5; ++from)
    for (int to = 1; to <= 5; ++to) {
      CAPTURE(from, to);
      auto at = std::vector<int>{};  // the first ranks go on, the others are with them
      for (int rank = 0; rank < from; ++rank) at.push_back(rank % to);
      auto const before = shards(n, from), after = shards(n, to);
      auto const counted = count(before, after, at, n);
      auto needed        = std::size_t{0};
      for (int rank = 0; rank < to; ++rank)
        for (std::size_t i = 0; i < n; ++i) {
          auto const own = after[static_cast<std::size_t>(rank)][0].range;
          REQUIRE(counted.times[static_cast<std::size_t>(rank)][i] == (i >= own.begin && i < own.end ? 1 : 0));
          auto here = false;
          for (int old = 0; old < from; ++old) {
            auto const had = before[static_cast<std::size_t>(old)][0].range;
            here           = here || (at[static_cast<std::size_t>(old)] == rank && i >= had.begin && i < had.end);
          }
          needed += i >= own.begin && i < own.end && !here ? 1 : 0;
        }
      CHECK(counted.sent == needed);  // the fewest that do
    }
}

TEST_CASE("what several ranks have comes from all of them in equal parts", "[placement][moves]") {
  auto const before = Layouts{all(90), all(90), all(90)};
  auto const found  = moves(before, Layouts{all(90), all(90), all(90), all(90)}, std::vector{0, 1, 2});
  REQUIRE(found.size() == 6);
  CHECK(found[0] == HeldMove{0, {0, 90}, 0, 0});  // it has it
  CHECK(found[3] == HeldMove{0, {0, 30}, 0, 3});
  CHECK(found[4] == HeldMove{0, {30, 60}, 1, 3});
  CHECK(found[5] == HeldMove{0, {60, 90}, 2, 3});
}

TEST_CASE("memory that is gone is refused, unless another rank has the same", "[placement][moves]") {
  CHECK_THROWS_WITH(moves(shards(100, 2), shards(100, 1), std::vector{0, -1}),
                    Catch::Contains("elements 50 to 100 of array 0 are in the memory of no rank that goes on"));
  CHECK(moves(Layouts{all(10), all(10)}, Layouts{all(10)}, std::vector{-1, 0}) ==
        std::vector<HeldMove>{{0, {0, 10}, 1, 0}});
}
