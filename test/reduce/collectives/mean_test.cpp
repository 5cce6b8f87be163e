// SPDX-License-Identifier: Apache-2.0
#include "test/support/on_ranks.hpp"

#include <chorale/reduce/collectives/mean.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/local.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

using namespace chorale;
using namespace chorale::test;

namespace {

/// The numbers of a rank: small ones of both signs, and both ends of the type.
template <class T> std::vector<T> numbers(Rank rank) {
  auto all = std::vector<T>{};
  for (int i = 0; i < 40; ++i) all.push_back(static_cast<T>((i * 7 + rank * 11) % 23 - (std::is_signed_v<T> ? 11 : 0)));
  all.push_back(std::numeric_limits<T>::max());
  all.push_back(std::numeric_limits<T>::lowest());
  all.push_back(static_cast<T>(std::numeric_limits<T>::max() - static_cast<T>(rank)));
  return all;
}

/// The mean of element i of all ranks by the rule, in numbers of 128 bits.
template <class T> T wanted(int ranks, std::size_t i, IntegerMean rule) {
  __extension__ using Wide = __int128;
  auto sum                 = Wide{0};
  for (Rank rank = 0; rank < ranks; ++rank) sum += static_cast<Wide>(numbers<T>(rank)[i]);
  auto down = sum / ranks - (sum % ranks < 0 ? 1 : 0);
  auto rest = sum - down * ranks;
  if (rule == IntegerMean::nearest && (2 * rest > ranks || (2 * rest == ranks && down % 2 != 0))) ++down;
  return static_cast<T>(down);
}

}  // namespace

TEMPLATE_TEST_CASE("the mean of integers is exact by its rule, also where their sum overflows", "[reduce][mean]",
                   std::int32_t, std::int64_t, std::uint32_t, std::uint64_t) {
  auto const ranks = GENERATE(1, 2, 3, 4, 7);
  auto const ended = on_ranks<LocalTransport>(ranks, 1, [&](auto& at, auto& ok) {
    ok[0]            = 0;
    auto const check = [&](IntegerMean rule, std::vector<TestType> const& x) {
      for (std::size_t i = 0; i < x.size(); ++i) ok[0] += x[i] == wanted<TestType>(ranks, i, rule) ? 0.0F : 1.0F;
    };
    auto x = numbers<TestType>(at.rank());
    all_reduce_mean<IntegerMean::floor>(RingAllReduce{}, at, Span<TestType>{x});
    check(IntegerMean::floor, x);
    x = numbers<TestType>(at.rank());
    all_reduce_mean<IntegerMean::nearest>(RingAllReduce{}, at, Span<TestType>{x});
    check(IntegerMean::nearest, x);
  });
  for (auto const& rank : ended) {
    CHECK(rank.error == "");
    CHECK(rank.x[0] == 0);
  }
}

TEST_CASE("the mean of floats is their sum, divided once", "[reduce][mean]") {
  auto const ended = on_ranks<LocalTransport>(3, 3, [](auto& at, auto& x) {
    x[0] = static_cast<float>(at.rank()), x[1] = 1, x[2] = at.rank() == 2 ? 1.0F : 0.0F;
    all_reduce_mean(RingAllReduce{}, at, Span<float>{x});
  });
  for (auto const& rank : ended) CHECK(rank.x == std::vector<float>{1.0F, 1.0F, 1.0F / 3});
}
