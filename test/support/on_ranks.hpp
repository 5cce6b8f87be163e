// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/random.hpp>
#include <chorale/core/threads.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace chorale::test {

/// What a rank had when its body returned or threw.
struct RankResult {
  std::vector<float> x;
  Cost cost;           // messages and bytes, when the transport counts
  std::string error;   // what it threw; empty when it returned
  Rank lost     = -1;  // whom the PeerLost names, if it was one
  bool was_lost = false;
};

/// The n values that a rank starts with: of both signs and of many magnitudes, so that the order of a sum shows.
inline std::vector<float> values_of(Rank rank, std::size_t n) {
  auto const random = Random{7, static_cast<std::uint64_t>(rank)};
  auto x            = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::ldexp(random.uniform(i, -1.0F, 1.0F), static_cast<int>(i % 13));
  return x;
}

/// Runs body(at, x) on every rank, each in a thread, and returns what each had in the end, in the order of ranks.
///
/// x   Span<float> of n values, values_of(rank, n) at first
template <Transport T, class Body>
std::vector<RankResult> on_ranks(int ranks, std::size_t n, Body body, T const& transport = {}) {
  auto endpoints = transport.connect(Group::all_local(ranks));
  auto results   = std::vector<RankResult>(static_cast<std::size_t>(ranks));
  {
    auto threads = std::vector<NamedThread>{};
    for (Rank rank = 0; rank < ranks; ++rank) {
      threads.emplace_back("rank " + std::to_string(rank), [&, rank] {
        auto& at     = endpoints[static_cast<std::size_t>(rank)];
        auto& result = results[static_cast<std::size_t>(rank)];
        result.x     = values_of(rank, n);
        try {
          auto x = Span<float>{result.x};
          body(at, x);
        } catch (PeerLost const& lost) {
          result.error    = lost.what();
          result.lost     = lost.rank();
          result.was_lost = true;
        } catch (std::exception const& error) { result.error = error.what(); }
        if (!result.error.empty()) fail(at, result.error);
        if constexpr (requires { at.sent(); }) result.cost = {at.sent().messages, at.sent().bytes};
      });
    }
  }
  return results;
}

/// Bit by bit: zeros of different signs differ, and a NaN equals itself.
inline bool same_bits(Span<float const> a, Span<float const> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// What an all-reduce of values_of() gives when element i is combined in the order of ranks first(i), first(i) + 1, ..
template <class First> std::vector<float> serial_reference(int ranks, std::size_t n, Op op, First first) {
  auto all = std::vector<std::vector<float>>{};
  for (Rank rank = 0; rank < ranks; ++rank) all.push_back(values_of(rank, n));
  auto sum = std::vector<float>(n);
  with_combine(op, [&](auto combined) {
    for (std::size_t i = 0; i < n; ++i) {
      auto const from = static_cast<std::size_t>(first(i));
      sum[i]          = all[from][i];
      for (std::size_t k = 1; k < all.size(); ++k) sum[i] = combined(sum[i], all[(from + k) % all.size()][i]);
    }
  });
  return sum;
}

}  // namespace chorale::test
