// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/placement/moves.hpp>

#include <concepts>
#include <cstddef>
#include <vector>

namespace chorale {

/// Consecutive numbers of the state of a copy, and where they are: variables are array 0 and laid out as
/// Variables::values, slot k of the optimizer is array 1 + k.
struct HeldNumbers {
  placement::Held held;
  float* at = nullptr;
};

/// All numbers of the state of a copy: held() of one that keeps pieces of its variables; of others all variables, and of
/// each slot what OptimizerState::mine() names.
template <class Copy>
std::vector<HeldNumbers> held_by(Copy& copy) {
  if constexpr (requires { { copy.held() } -> std::same_as<std::vector<HeldNumbers>>; }) {
    return copy.held();
  } else {
    auto const values = copy.net.variables().values;
    auto const slots  = copy.optimizer.slots();
    auto const mine   = copy.optimizer.mine();
    auto all          = std::vector<HeldNumbers>{{{0, {0, values.size()}}, values.data()}};
    constexpr auto n  = static_cast<std::size_t>(Copy::optimizer_slots);
    for (std::size_t k = 0; k < n && !slots.empty(); ++k) {
      auto const stride = slots.size() / n;                                // with tables: more than the dense variables
      all.push_back({{static_cast<int>(k) + 1, stride == mine.size() ? mine : Range{0, stride}},
                     slots.data() + k * stride});
    }
    return all;
  }
}

}  // namespace chorale
