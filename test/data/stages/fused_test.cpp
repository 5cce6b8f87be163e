// SPDX-License-Identifier: Apache-2.0
#include "test/data/sources.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace chorale;

namespace {

/// Two numbers of a row, its place and its own random numbers. Row `fails` cannot be made; row `wide` is too wide.
struct Noisy {
  int fails = -1, wide = -1;

  void operator()(Sample<float, int> const& row, std::vector<float>& x, std::vector<int>& y, data::Place at) const {
    if (row.y[0] == fails) throw std::runtime_error{"no row " + std::to_string(fails)};
    auto const random = at.random(Seed{5});
    auto sum          = 0.0F;
    for (std::uint64_t i = 0; i < 20 * random.below(0, 20); ++i) sum += random.uniform(i);
    x.assign(row.y[0] == wide ? 3 : 2, row.x[0] + sum);
    y.assign(1, row.y[0]);
  }
};

struct Batches {
  std::vector<float> x;
  std::vector<int> y;
  std::vector<std::size_t> rows;
  std::string error;  // what ended the pass, if anything
  friend bool operator==(Batches const&, Batches const&) = default;
};

template <class D> Batches pass(D const& batches, std::size_t epoch) {
  auto all    = Batches{};
  auto stream = batches.stream(epoch);
  try {
    for (Batch batch; stream.next(batch);) {
      all.x.insert(all.x.end(), batch.x.begin(), batch.x.end());
      all.y.insert(all.y.end(), batch.y.begin(), batch.y.end());
      all.rows.push_back(batch.rows);
    }
  } catch (std::exception const& why) { all.error = why.what(); }
  return all;
}

/// The same two stages, one behind the other.
template <class D> auto two_stages(D mapped, int rows, data::Remainder remainder) {
  return data::Batched<D>{std::move(mapped), rows, remainder};
}

}  // namespace

TEST_CASE("a map and its batches are one stage, with the same batches", "[data][fused]") {
  using data::Remainder;
  auto const rows = sources::Counting{103};
  STATIC_REQUIRE_FALSE(std::is_same_v<decltype(rows.map(Noisy{}, {}).batch(4)),
                                      decltype(two_stages(rows.map(Noisy{}, {}), 4, Remainder::keep))>);
  for (auto const remainder : {Remainder::keep, Remainder::drop})
    for (int const n : {1, 7, 103, 1'000})
      for (std::size_t const threads : {1U, 2U, 3U, 8U}) {
        auto const how = data::Parallel{.threads = threads, .ahead = threads == 3 ? 40U : 0U};
        CAPTURE(n, threads);
        for (std::size_t epoch = 0; epoch < 2; ++epoch) {
          auto const expected = pass(two_stages(rows.map(Noisy{}), n, remainder), epoch);
          CHECK(pass(rows.map(Noisy{}, how).batch(n, remainder), epoch) == expected);
          CHECK(pass(two_stages(rows.map(Noisy{}, how), n, remainder), epoch) == expected);
          CHECK(pass(rows.cache().map(Noisy{}, how).batch(n, remainder).prefetch(2), epoch) == expected);
        }
        auto const one = rows.map(Noisy{}, how).batch(n, remainder);
        CHECK(one.size() == two_stages(rows.map(Noisy{}), n, remainder).size());
        CHECK(pass(one.repeat(2).prefetch(1), 0).y.size() == 2 * pass(one, 0).y.size());
      }
  CHECK(pass(sources::Counting{0}.map(Noisy{}, {}).batch(3), 0) == Batches{});
}

TEST_CASE("errors come out of a fused map and batch where they come out of two stages", "[data][fused]") {
  auto const check = [](auto const& mapped, auto const& plain, int n) {
    auto const expected = pass(two_stages(plain, n, data::Remainder::keep), 0);
    CHECK_FALSE(expected.error.empty());
    CHECK(pass(mapped.batch(n), 0) == expected);
    CHECK(pass(mapped.batch(n).prefetch(2), 0) == expected);
    auto stream = mapped.batch(n).stream(0);
    auto batch  = Batch{};
    for (std::size_t i = 0; i < expected.rows.size(); ++i) REQUIRE(stream.next(batch));
    for (int again = 0; again < 2; ++again) CHECK_THROWS_WITH(stream.next(batch), expected.error);
  };
  for (std::size_t const threads : {1U, 2U, 5U})
    for (int const n : {1, 4, 30, 200}) {
      auto const how  = data::Parallel{.threads = threads};
      auto const rows = sources::Counting{100};
      CAPTURE(threads, n);
      for (int const row : {0, 30, 99}) check(rows.map(Noisy{row}, how), rows.map(Noisy{row}), n);
      check(rows.map(Noisy{.wide = 31}, how), rows.map(Noisy{.wide = 31}), n);
      for (std::size_t const row : {0U, 7U}) {
        auto const broken = sources::Counting{100, row};
        check(broken.map(Noisy{}, how), broken.map(Noisy{}), n);
      }
    }
}

TEST_CASE("a fused map and batch can be left at any point, and reads only so far ahead", "[data][fused]") {
  auto const source  = sources::Counting{100'000};
  auto const batches = source.map(Noisy{}, {.threads = 3}).batch(4);
  for (int read = 0; read < 10; ++read) {
    auto stream = batches.stream(0);
    auto batch  = Batch{};
    for (int i = 0; i < read; ++i) REQUIRE(stream.next(batch));
    auto moved = std::move(stream);
    CHECK(moved.next(batch));
    CHECK(batch.y[0] == 4 * read);
  }
  CHECK(source.reads() <= 10 * 4 * (10 + 3));  // of each stream: what was read, and three batches
}

TEST_CASE("a shuffle and its repeats are one stage, with the same order", "[data][fused]") {
  auto const check = [](auto const& rows) {
    for (std::size_t const buffer : {1U, 3U, 20U, 100U})
      for (std::size_t const passes : {1U, 2U, 5U}) {
        auto const shuffled = rows.shuffle(buffer, 3);
        auto const two      = data::Repeated<std::remove_cv_t<decltype(shuffled)>>{shuffled, passes};
        auto const one      = shuffled.repeat(passes);
        STATIC_REQUIRE_FALSE(std::is_same_v<decltype(one), decltype(two)>);
        CHECK(one.size() == two.size());
        for (std::size_t epoch = 0; epoch < 3; ++epoch)
          CHECK(sources::targets(one, epoch) == sources::targets(two, epoch));
      }
  };
  check(sources::Counting{20});          // rows that are copied
  check(sources::Counting{20}.cache());  // rows that stay
  check(sources::Counting{20}.filter([third = 3](auto const& row) { return row.y[0] % third == 0; }));
  CHECK(sources::targets(sources::Counting{0}.shuffle(4).repeat(3)).empty());
  CHECK_THROWS_AS(sources::Counting{2}.shuffle(4).repeat(0), BadArgument);
}
