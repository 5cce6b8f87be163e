// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/transport/simulated.hpp>

#include <cstddef>
#include <vector>

namespace chorale {

/// How many orders of delivery were tried, and whether those were all.
struct OrdersTried {
  std::size_t orders = 0;
  bool all           = false;
};

/// Runs a small simulation once for every order in which its messages can arrive; messages with one tag between two
/// ranks keep theirs. A send is done when its message is received, so that a superfluous wait shows as a deadlock.
///
/// attempt    called with a transport that replays one order: makes new ranks and data, runs simulate(), checks;
///            returns false to stop, which leaves `transport.choose` on that order
/// most       the largest number of orders to try
/// cost       as many runs as there are orders, 30 us each for 3 ranks. Of an all-reduce of 4 elements recursive
///            doubling has 1,120 with 4 ranks, a double tree 12,096; a ring 3,072 with 3, and with 4 too many to try
/// order      depth first, so that consecutive runs differ in the last choices
template <class Attempt> OrdersTried every_order(std::size_t most, SimulatedTransport transport, Attempt attempt) {
  struct Choice {
    std::size_t taken, of;
  };
  auto path        = std::vector<Choice>{};
  auto next        = std::size_t{0};
  transport.choose = [&](std::size_t n) {
    if (next == path.size()) path.push_back({0, n});
    return path[next++].taken;
  };
  for (auto tried = OrdersTried{}; tried.orders < most;) {
    next = 0;
    ++tried.orders;
    if (!attempt(static_cast<SimulatedTransport const&>(transport))) return tried;
    while (!path.empty() && path.back().taken + 1 == path.back().of) path.pop_back();
    if (path.empty()) return {tried.orders, true};
    ++path.back().taken;
    if (tried.orders == most) return tried;
  }
  return {};
}

}  // namespace chorale
