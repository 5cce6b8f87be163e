// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace chorale {

/// A transport that was told what ranks must have in common: those that were built from other models refuse each other.
/// Where ranks share memory, it has room for the gradients.
template <class T, std::size_t N, std::size_t Layers>
T planned(T transport, Plan<N, Layers> const& plan) {
  if constexpr (requires { transport.plan = lines_of(plan); }) {
    if (transport.plan.empty()) transport.plan = lines_of(plan);
  } else if constexpr (requires { transport.plan = std::string{}; }) {
    if (transport.plan.empty())
      for (auto const& line : lines_of(plan)) transport.plan += (transport.plan.empty() ? "" : "\n") + line;
  }
  if constexpr (requires { transport.arena = std::size_t{0}; })
    transport.arena = std::max(transport.arena, plan.bytes_per_step());
  return transport;
}

}  // namespace chorale
