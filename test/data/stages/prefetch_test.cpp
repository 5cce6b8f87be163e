// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <set>
#include <thread>
#include <vector>

using namespace chorale;

namespace {
std::atomic<std::size_t> allocations{0};
}

// Counts what the whole program allocates, in any thread. Not inlined: else gcc sees malloc meet delete, and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  ++allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (auto* p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("prefetch gives the elements of its source in their order", "[data]") {
  auto const rows = sources::Counting{50};
  for (std::size_t const n : std::vector<std::size_t>{1, 2, 7, 100}) {
    CHECK(sources::targets(rows.prefetch(n)) == sources::in_order(50));           // rows that are copied
    CHECK(sources::targets(rows.cache().prefetch(n)) == sources::in_order(50));   // rows that stay
    CHECK(sources::targets(rows.batch(7).prefetch(n)) == sources::in_order(50));  // batches gathered in place
    CHECK(sources::targets(rows.batch(7).repeat(1).prefetch(n)) == sources::in_order(50));
    CHECK(sources::targets(rows.batch(7).shuffle(1).prefetch(n)) == sources::in_order(50));
    CHECK(sources::targets(rows.batch(7).prefetch(n).prefetch(n)) == sources::in_order(50));
  }
  CHECK(rows.batch(7).prefetch(2).size() == 8);
}

TEST_CASE("a prefetched stream that has ended stays ended", "[data]") {
  auto stream = sources::Counting{2}.batch(2).prefetch(2).stream(0);
  auto batch  = Batch{};
  REQUIRE(stream.next(batch));
  CHECK_FALSE(stream.next(batch));
  CHECK_FALSE(stream.next(batch));
}

TEST_CASE("prefetch is bounded: n elements ahead of the one that the reader holds", "[data]") {
  auto const source = sources::Counting{1'000};
  auto stream       = source.prefetch(3).stream(0);
  auto row          = Sample<float, int>{};
  for (std::size_t held = 1; held <= 20; ++held) {
    REQUIRE(stream.next(row));
    spin_until([&] { return source.reads() >= held + 3; });  // it does get that far
    CHECK(source.reads() == held + 3);                       // and no further
    CHECK(row.y[0] == static_cast<int>(held) - 1);
  }
}

TEST_CASE("prefetch is bounded by bytes: while so many are there, no more is made", "[data]") {
  auto const source = sources::Counting{200};  // rows of 12 bytes
  auto stream       = source.prefetch({.elements = 100, .bytes = 30}).stream(0);
  auto row          = Sample<float, int>{};
  for (std::size_t held = 1; held <= 20; ++held) {
    REQUIRE(stream.next(row));
    spin_until([&] { return source.reads() >= held + 2; });  // 24 bytes are not enough, 36 are
    CHECK(source.reads() == held + 2);
  }
  for (std::size_t const bytes : {1U, 12U, 13U, 1'000U})
    CHECK(sources::targets(source.prefetch({.elements = 9, .bytes = bytes})) == sources::in_order(200));
  CHECK_THROWS_AS(source.prefetch({.bytes = 0}), BadArgument);
}

TEST_CASE("a long prefetch gives its elements to readers that are faster, and slower", "[data]") {
  auto const source = sources::Counting{20'000};
  for (std::size_t const n : {8U, 64U, 1'000U}) {
    CHECK(sources::targets(source.prefetch(n)) == sources::in_order(20'000));
    auto stream = source.take(2'000).prefetch(n).stream(0);
    auto row    = Sample<float, int>{};
    for (int i = 0; i < 2'000; ++i) {
      if (i % 500 == 7) std::this_thread::yield();  // it may run ahead meanwhile
      REQUIRE(stream.next(row));
      CHECK(row.y[0] == i);
    }
    CHECK_FALSE(stream.next(row));
  }
}

TEST_CASE("batches are gathered straight into n + 1 buffers, and nothing is allocated for them later", "[data]") {
  auto stream = sources::Counting{1'000}.cache().shuffle(100).batch(10).repeat(1).prefetch(2).stream(0);
  auto batch  = Batch{};
  auto places = std::set<float const*>{};
  for (int i = 0; i < 10; ++i) {
    REQUIRE(stream.next(batch));
    places.insert(batch.x.data());
  }
  auto const before = allocations.load();
  auto sum          = 0.0F;
  auto others       = 0;
  while (stream.next(batch)) others += !places.contains(batch.x.data()), sum += batch.x[0];
  auto const after = allocations.load();
  CHECK(after == before);
  CHECK(places.size() == 3);
  CHECK(others == 0);
  CHECK(sum > 0);
}

TEST_CASE("an error of the source comes out of next, after the elements before it", "[data]") {
  auto stream = sources::Counting{10, 3}.prefetch(5).stream(0);
  auto row    = Sample<float, int>{};
  for (int i = 0; i < 3; ++i) {
    REQUIRE(stream.next(row));
    CHECK(row.y[0] == i);
  }
  CHECK_THROWS_WITH(stream.next(row), "row 3 is broken");
  CHECK_THROWS_WITH(stream.next(row), "row 3 is broken");
}

TEST_CASE("a stream can be left at any point, and its thread ends with it", "[data]") {
  auto const source  = sources::Counting{1'000'000};
  auto const batches = source.batch(4).prefetch(2);
  for (int read = 0; read < 20; ++read) {
    auto stream = batches.stream(0);
    auto batch  = Batch{};
    for (int i = 0; i < read; ++i) REQUIRE(stream.next(batch));
  }
  auto const reads = source.reads();
  CHECK(reads <= 20 * (19 + 3) * 4);  // far from the end of even one pass
}

TEST_CASE("a stream can move while its thread works", "[data]") {
  auto stream = sources::Counting{20}.batch(4).prefetch(2).stream(0);
  auto moved  = std::move(stream);
  auto batch  = Batch{};
  auto rows   = std::size_t{0};
  while (moved.next(batch)) rows += batch.rows;
  CHECK(rows == 20);
}

TEST_CASE("a prefetch of nothing is refused", "[data]") {
  CHECK_THROWS_AS(sources::Counting{2}.prefetch(0), BadArgument);
}
