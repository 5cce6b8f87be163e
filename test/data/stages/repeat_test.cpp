// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <vector>

using namespace chorale;

namespace {

/// Six rows, of which the second pass fails at once.
struct Second : data::Pipe<Second> {
  using element                = sources::Counting::element;
  static constexpr bool stable = false;
  sources::Counting::Stream stream(std::size_t epoch) const {
    return (epoch == 0 ? sources::Counting{6} : sources::Counting{6, 0}).stream(0);
  }
  std::optional<std::size_t> size() const { return 6; }
};

}  // namespace

TEST_CASE("repeat is that many passes, one after another", "[data]") {
  auto const twice = sources::Counting{3}.repeat(2);
  CHECK(sources::targets(twice) == std::vector<int>{0, 1, 2, 0, 1, 2});
  CHECK(twice.size() == 6);
}

TEST_CASE("every pass within a repeat has its own order, and epochs go on where it ends", "[data]") {
  auto const shuffled = sources::Counting{20}.shuffle(20, 1);
  auto expected       = sources::targets(shuffled, 4);
  for (int const y : sources::targets(shuffled, 5)) expected.push_back(y);
  CHECK(sources::targets(shuffled.repeat(2), 2) == expected);
  CHECK(sources::targets(shuffled, 4) != sources::targets(shuffled, 5));
}

TEST_CASE("a batch after repeat may have rows of two passes", "[data]") {
  CHECK(sources::Counting{3}.repeat(2).batch(4).size() == 2);
  CHECK(sources::targets(sources::Counting{3}.cache().repeat(2).batch(4)) == std::vector<int>{0, 1, 2, 0, 1, 2});
}

TEST_CASE("passes without rows end", "[data]") { CHECK(sources::targets(sources::Counting{0}.repeat(5)).empty()); }

TEST_CASE("repeat refuses no passes, and does not count further than it can", "[data]") {
  CHECK_THROWS_AS(sources::Counting{3}.repeat(0), BadArgument);
  CHECK_FALSE(sources::Counting{3}.repeat(std::numeric_limits<std::size_t>::max() / 2).size().has_value());
}

TEST_CASE("passes without end are there in every epoch", "[data]") {
  for (std::size_t const epoch : {0U, 1U, 2U}) {
    auto stream = sources::Counting{3}.repeat(std::numeric_limits<std::size_t>::max()).stream(epoch);
    auto row    = Sample<float, int>{};
    for (int i = 0; i < 7; ++i) {
      REQUIRE(stream.next(row));
      CHECK(row.y[0] == i % 3);
    }
  }
}

TEST_CASE("shuffle and repeat read the next pass while this one drains, in the order of the two stages", "[data]") {
  for (std::size_t const rows : {0U, 1U, 5U, 20U, 21U})
    for (std::size_t const buffer : {1U, 4U, 20U, 50U}) {
      auto const shuffled = sources::Counting{rows}.shuffle(buffer, 3);
      auto expected       = std::vector<int>{};
      for (std::size_t pass = 3; pass < 6; ++pass)
        for (int const y : sources::targets(shuffled, pass)) expected.push_back(y);
      CHECK(sources::targets(shuffled.repeat(3), 1) == expected);
      CHECK(sources::targets(sources::Counting{rows}.cache().shuffle(buffer, 3).repeat(3), 1) == expected);
    }

  auto const source = sources::Counting{20};
  auto stream       = source.shuffle(8).repeat(3).stream(0);
  auto row          = Sample<float, int>{};
  for (std::size_t pass = 0; pass < 3; ++pass)
    for (std::size_t k = 0; k < 20; ++k) {
      REQUIRE(stream.next(row));
      auto const ahead   = std::min<std::size_t>(20 * (pass + 1), 20 * pass + 8 + k);  // of this pass
      auto const of_next = k < 13 || pass == 2 ? 0 : k - 12;  // element 13 is the first that frees a slot
      CHECK(source.reads() == ahead + of_next);
    }
  CHECK_FALSE(stream.next(row));
  CHECK(source.reads() == 60);
}

TEST_CASE("all passes of a shuffle keep their elements in the memory of one buffer", "[data]") {
  for (std::size_t const rows : {5U, 8U, 20U}) {
    auto stream = sources::Counting{rows}.shuffle(8).repeat(50).stream(0);
    auto places = std::set<float const*>{};
    for (auto row = Sample<float, int>{}; stream.next(row);) places.insert(row.x.data());
    CHECK(places.size() <= 8);
  }
}

TEST_CASE("a pass that fails while it is read ahead fails where it begins", "[data]") {
  auto stream = Second{}.shuffle(4).repeat(2).stream(0);
  auto row    = Sample<float, int>{};
  for (int k = 0; k < 6; ++k) REQUIRE(stream.next(row));
  CHECK_THROWS_WITH(stream.next(row), "row 0 is broken");
  CHECK_THROWS_WITH(stream.next(row), "row 0 is broken");
}
