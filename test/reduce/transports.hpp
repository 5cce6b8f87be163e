// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test/support/cases.hpp"

#include <chorale/reduce/schedule.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace chorale::test {

/// What one rank had after an all-reduce, and what it sent for it.
struct Reduced {
  std::vector<float> x{};
  Cost cost{};
  std::string error{};  // what it threw, if it did
};

/// Where x lies: in memory that ranks share, where the transport has some.
template <class E> Span<float> placed(E& at, std::vector<float>& x) {
  if constexpr (requires { at.memory(); }) {
    auto const all = Span<float>{reinterpret_cast<float*>(at.memory().data()), at.memory().size() / sizeof(float)};
    if (all.size() < x.size()) return x;
    std::ranges::copy(x, all.begin());
    return all.first(x.size());
  } else {
    return x;
  }
}

/// All-reduces of values_of(), one of each size after another over the same connections.
///
/// returns  [rank][size]
template <class R, Transport T>
std::vector<std::vector<Reduced>> reduced(int ranks, std::vector<std::size_t> const& sizes, T const& transport = {}) {
  auto endpoints = Counting<T>{transport}.connect(Group::all_local(ranks));
  auto all       = std::vector<std::vector<Reduced>>(endpoints.size(), std::vector<Reduced>(sizes.size()));
  auto threads   = std::vector<NamedThread>{};
  for (std::size_t rank = 0; rank < endpoints.size(); ++rank)
    threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
      auto& at = endpoints[rank];
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        auto& mine        = all[rank][i];
        auto const before = at.sent();
        try {
          auto values  = values_of(static_cast<Rank>(rank), sizes[i]);
          auto const x = placed(at, values);
          R{}.all_reduce(at, x, Op::sum);
          mine.x.assign(x.begin(), x.end());
        } catch (std::exception const& error) {
          mine.error = error.what();
          fail(at, mine.error);
          return;
        }
        mine.cost = {at.sent().messages - before.messages, at.sent().bytes - before.bytes};
      }
    });
  threads.clear();
  return all;
}

/// What the algorithm says that a rank sends.
template <class R> Cost planned(Rank rank, int ranks, std::size_t n) {
  if constexpr (Schedule<R>) {
    auto const sent = traffic<R>(rank, ranks, n, sizeof(float));
    return {sent.messages, sent.bytes};
  } else {  // all have exposed, all have left
    return {ranks > 1 ? 2 : 0, 2 * static_cast<std::size_t>(ranks - 1) * share(n, rank, ranks).size() * sizeof(float)};
  }
}

/// Over `transport` each rank has the bits that ranks have over LocalTransport, and has sent what was planned.
template <class R, Transport T>
void check_like_local(int ranks, std::vector<std::size_t> const& sizes, T const& transport = {}) {
  auto const here  = reduced<R, LocalTransport>(ranks, sizes);
  auto const there = reduced<R>(ranks, sizes, transport);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto most = std::size_t{0};
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto const& mine = there[static_cast<std::size_t>(rank)][i];
      INFO("rank " << rank << " of " << ranks << ", " << sizes[i] << " values");
      CHECK(mine.error == "");
      CHECK(same_bits(mine.x, here[0][i].x));
      CHECK(mine.cost == planned<R>(rank, ranks, sizes[i]));
      most = std::max(most, mine.cost.bytes);
    }
    auto const divides = sizes[i] % static_cast<std::size_t>(ranks) == 0 && sizes[i] % 16 == 0;  // every share, too
    if (divides) CHECK(most == R::cost(ranks, sizes[i] * sizeof(float)).bytes);
  }
}

inline std::vector<std::size_t> const small_sizes = {0, 1, 5, 1'344, 10'007};  // 1,344 = 2^6 · 21; a prime
inline constexpr std::size_t large_prime          = 1'000'003;

}  // namespace chorale::test
