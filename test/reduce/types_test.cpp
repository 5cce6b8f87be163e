// SPDX-License-Identifier: Apache-2.0
// Every type of element and every operation: on the ring, in place, and by exchange.
#include "test/support/cases.hpp"

#include <chorale/core/half.hpp>
#include <chorale/core/random.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

/// Numbers of which sums and products do not fit: integers wrap, and the order of a sum of fractions shows.
template <class T> std::vector<T> brought(Rank rank, std::size_t n) {
  auto const random = Random{11, static_cast<std::uint64_t>(rank)};
  auto x            = std::vector<T>(n);
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (std::integral<T>) {
      x[i] = static_cast<T>(static_cast<std::uint64_t>(random.uniform(i, 0.0F, 1.0F) * 0x1p31F) * 0x2'0000'0003ULL);
    } else {
      x[i] = static_cast<T>(std::ldexp(random.uniform(i, -1.0F, 1.0F), static_cast<int>(i % 5)));
    }
  }
  return x;
}

template <class R, class T> void check_all_operations(int ranks) {
  constexpr std::size_t n = 1'001;
  auto all                = std::vector<std::vector<T>>{};
  for (Rank rank = 0; rank < ranks; ++rank) all.push_back(brought<T>(rank, n));
  auto reduced     = std::vector<std::vector<T>>(4 * all.size());
  auto const ended = on_ranks<LocalTransport>(ranks, 0, [&](auto& at, auto&) {
    for (int op = 0; op < 4; ++op) {
      auto x = all[static_cast<std::size_t>(at.rank())];
      R{}.all_reduce(at, Span<T>{x}, static_cast<Op>(op));
      reduced[static_cast<std::size_t>(4 * at.rank() + op)] = x;
    }
  });
  for (auto const& rank : ended) CHECK(rank.error == "");
  for (std::size_t op = 0; op < 4; ++op) {
    auto const expected = reference_of<R>(all, static_cast<Op>(op));
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      CHECK(std::memcmp(reduced[4 * rank + op].data(), expected.data(), n * sizeof(T)) == 0);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("elements of every type are reduced, under every operation", "[reduce][types]", double, bf16, fp16,
                   std::int32_t, std::int64_t, std::uint32_t, std::uint64_t) {
  auto const ranks = GENERATE(2, 3);
  check_all_operations<RingAllReduce, TestType>(ranks);
  check_all_operations<DirectAllReduce, TestType>(ranks);
}

TEMPLATE_TEST_CASE("elements of every type are exchanged", "[reduce][types]", bf16, fp16, std::int64_t) {
  check_all_operations<RecursiveDoublingAllReduce, TestType>(3);
}

TEST_CASE("integers wrap, in either sign", "[reduce][types]") {
  using I = std::numeric_limits<std::int32_t>;
  using L = std::numeric_limits<std::int64_t>;
  STATIC_REQUIRE(combine<Op::sum>(I::max(), 1) == I::min());
  STATIC_REQUIRE(combine<Op::product>(I::max(), I::max()) == 1);
  STATIC_REQUIRE(combine<Op::sum>(L::min(), std::int64_t{-1}) == L::max());
  STATIC_REQUIRE(combine<Op::product>(~std::uint64_t{0}, ~std::uint64_t{0}) == 1);
}

TEMPLATE_TEST_CASE("a NaN stays, and of two zeros min and max give the second", "[reduce][types]", float, double, bf16,
                   fp16) {
  auto const number = [](float value) { return static_cast<TestType>(value); };
  auto const nan    = number(std::numeric_limits<float>::quiet_NaN());
  auto const is_nan = [](TestType value) { return value != value; };
  with_combine(GENERATE(Op::sum, Op::min, Op::max, Op::product), [&](auto combined) {
    CHECK(is_nan(combined(nan, number(1))));
    CHECK(is_nan(combined(number(1), nan)));
    CHECK_FALSE(is_nan(combined(number(1), number(-1))));
  });
  auto const sign = [](TestType value) { return std::signbit(static_cast<double>(value)); };
  CHECK_FALSE(sign(combine<Op::min>(number(-0.0F), number(0.0F))));
  CHECK(sign(combine<Op::min>(number(0.0F), number(-0.0F))));
  CHECK_FALSE(sign(combine<Op::max>(number(-0.0F), number(0.0F))));
  CHECK(sign(combine<Op::max>(number(0.0F), number(-0.0F))));
}
