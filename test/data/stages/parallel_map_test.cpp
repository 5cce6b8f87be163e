// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace parallel_map_test {

using namespace chorale;
using data::Order;

namespace {

/// Noise that depends on row and epoch, and takes longer for some rows.
struct Noisy {
  void operator()(Sample<float, int> const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) const {
    auto const random = at.random(Seed{5});
    auto sum          = 0.0F;
    for (std::uint64_t i = 0; i < 20 * random.below(0, 20); ++i) sum += random.uniform(i);
    x.assign(1, row.x[0] + sum);
    y.assign(1, row.y[0]);
  }
};

struct Pass {
  std::vector<float> x;
  std::vector<int> y;
  friend bool operator==(Pass const&, Pass const&) = default;
};

Pass pass(auto const& rows, std::size_t epoch) {
  auto stream = rows.stream(epoch);
  auto all    = Pass{};
  for (Sample<float, int> row; stream.next(row);) all.x.push_back(row.x[0]), all.y.push_back(row.y[0]);
  return all;
}

}  // namespace

TEST_CASE("a map by several threads gives the bits and the order of a map by one", "[data][parallel]") {
  auto const rows = sources::Counting{200};
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    auto const expected = pass(rows.map(Noisy{}), epoch);
    for (std::size_t const threads : {1U, 2U, 3U, 8U}) {
      CHECK(pass(rows.map(Noisy{}, {.threads = threads}), epoch) == expected);
      CHECK(pass(rows.map(Noisy{}, {.threads = threads, .ahead = 1}), epoch) == expected);
      CHECK(pass(rows.cache().map(Noisy{}, {.threads = threads, .ahead = 100}), epoch) == expected);
    }
  }
  CHECK(pass(rows.map(Noisy{}), 0) != pass(rows.map(Noisy{}), 1));
  CHECK(rows.map(Noisy{}, {}).size() == 200);
}

TEST_CASE("in any order, the rows are the same", "[data][parallel]") {
  auto const rows = sources::Counting{200};
  auto expected   = pass(rows.map(Noisy{}), 1);
  for (std::size_t const threads : {1U, 2U, 8U}) {
    auto const any = pass(rows.map(Noisy{}, {.threads = threads, .order = Order::any}), 1);
    REQUIRE(any.y.size() == 200);
    auto x = std::vector<float>(200);
    for (std::size_t i = 0; i < 200; ++i) x.at(static_cast<std::size_t>(any.y[i])) = any.x[i];
    CHECK(x == expected.x);
  }
}

TEST_CASE("in any order, a row that takes long holds nobody up; in a fixed one it does", "[data][parallel]") {
  auto const go   = std::make_shared<std::atomic<bool>>(false);
  auto const slow = [go](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    if (row.y[0] == 0) spin_until([&] { return go->load(); });
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
  };
  auto stream = sources::Counting{20}.map(slow, {.threads = 2, .order = Order::any}).stream(0);
  auto row    = Sample<float, int>{};
  for (int i = 1; i < 20; ++i) {
    REQUIRE(stream.next(row));
    CHECK(row.y[0] == i);
  }
  *go = true;
  REQUIRE(stream.next(row));
  CHECK(row.y[0] == 0);
  CHECK_FALSE(stream.next(row));
}

TEST_CASE("a parallel map is bounded: so many rows ahead of the one that the reader holds", "[data][parallel]") {
  auto const source = sources::Counting{1'000};
  auto const same   = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
  };
  auto stream = source.map(same, {.threads = 3, .ahead = 4}).stream(0);
  auto row    = Sample<float, int>{};
  for (std::size_t held = 1; held <= 20; ++held) {
    REQUIRE(stream.next(row));
    spin_until([&] { return source.reads() >= held + 4; });  // it does get that far
    CHECK(source.reads() == held + 4);                       // and no further
    CHECK(row.y[0] == static_cast<int>(held) - 1);
  }
}

TEST_CASE("an error of the function, or of the source, comes after the rows before it", "[data][parallel]") {
  auto const picky = [](auto const& row, std::vector<float>& x, std::vector<int>& y) {
    if (row.y[0] >= 30) throw std::runtime_error{"no row " + std::to_string(row.y[0])};
    x.assign(row.x.begin(), row.x.end()), y.assign(row.y.begin(), row.y.end());
  };
  for (std::size_t const threads : {1U, 2U, 5U}) {
    auto const check = [&](auto stream, int good, std::string const& message) {
      auto row = Sample<float, int>{};
      for (int i = 0; i < good; ++i) {
        REQUIRE(stream.next(row));
        CHECK(row.y[0] == i);
      }
      CHECK_THROWS_WITH(stream.next(row), message);
      CHECK_THROWS_WITH(stream.next(row), message);
    };
    check(sources::Counting{100}.map(picky, {.threads = threads}).stream(0), 30, "no row 30");
    check(sources::Counting{100, 7}.map(picky, {.threads = threads}).stream(0), 7, "row 7 is broken");
    auto any = sources::Counting{100}.map(picky, {.threads = threads, .order = Order::any}).stream(0);
    auto row = Sample<float, int>{};
    CHECK_THROWS_AS(
        [&] {
          while (any.next(row)) continue;
        }(),
        std::runtime_error);
  }
}

TEST_CASE("behind its last row a mapped stream stays at its end", "[data][parallel]") {
  for (int again = 0; again < 2'000; ++again) {
    auto stream = sources::Counting{5}.map(Noisy{}, {.threads = 1U + static_cast<unsigned>(again) % 3}).stream(0);
    auto rows   = 0;
    auto row    = Sample<float, int>{};
    while (stream.next(row)) ++rows;
    for (int more = 0; more < 3; ++more) rows += stream.next(row);
    REQUIRE(rows == 5);
  }
}

TEST_CASE("each thread has a copy of the function, which may keep state", "[data][parallel]") {
  auto const counting = [calls = 0](auto const& row, std::vector<float>& x, std::vector<int>& y) mutable {
    ++calls;
    x.assign(1, static_cast<float>(calls)), y.assign(1, row.y[0]);
  };
  auto const all = pass(sources::Counting{50}.map(counting, {.threads = 1}), 0);
  CHECK(all.x.back() == 50.0F);
  CHECK(pass(sources::Counting{50}.map(counting, {.threads = 4}), 0).y == all.y);
}

TEST_CASE("a mapped stream can be left at any point, moved, and put before other stages", "[data][parallel]") {
  auto const mapped = sources::Counting{10'000}.map(Noisy{}, {.threads = 3});
  for (int read = 0; read < 10; ++read) {
    auto stream = mapped.stream(0);
    auto row    = Sample<float, int>{};
    for (int i = 0; i < read; ++i) REQUIRE(stream.next(row));
    auto moved = std::move(stream);
    CHECK(moved.next(row));
  }
  auto const whole = sources::Counting{60}.map(Noisy{}, {.threads = 3}).shuffle(10, 1).repeat(2).prefetch(3);
  CHECK(pass(whole, 1) == pass(sources::Counting{60}.map(Noisy{}).shuffle(10, 1).repeat(2), 1));
}

TEST_CASE("random numbers of a row are its own", "[data][parallel]") {
  auto const bits = [](std::size_t epoch, std::size_t row, std::uint64_t seed) {
    return data::Place{epoch, row}.random(Seed{seed}).bits(0);
  };
  CHECK(bits(1, 2, 3) == bits(1, 2, 3));
  CHECK(bits(1, 2, 3) != bits(2, 1, 3));
  CHECK(bits(1, 2, 3) != bits(1, 3, 3));
  CHECK(bits(1, 2, 3) != bits(1, 2, 4));
}

}  // namespace parallel_map_test
