// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/placement/moves.hpp>
#include <chorale/tensor/plan.hpp>

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

/// The numbers that a copy has whose units take turns: runs of variables, or all of them, and runs of each slot.
template <class Copy>
std::vector<HeldNumbers> held_in_units(Copy& copy) {
  auto& units      = copy.units();
  auto const whole = units.variables(), ends = units.ends();
  auto const size  = units.cut().elements();
  auto const runs  = units.cut().runs_of(units.shard().rank);
  auto all         = std::vector<HeldNumbers>{};
  if (!units.splits()) all.push_back({{0, {0, whole.size()}}, whole.data()});
  if (units.splits()) {
    all.push_back({{0, {0, plan::header}}, ends.data()});
    all.push_back({{0, {plan::header + size, plan::header + size + plan::trailer}}, ends.data() + plan::header});
    for (auto const& run : runs)
      all.push_back({{0, {plan::header + run.range.begin, plan::header + run.range.end}}, units.values().data() + run.at});
  }
  for (std::size_t k = 0; k < static_cast<std::size_t>(Copy::optimizer_slots); ++k)
    for (auto const& run : runs)
      all.push_back({{static_cast<int>(k) + 1, run.range}, units.slots().data() + k * units.held() + run.at});
  return all;
}

/// All numbers of the state of a copy: held() of one that keeps pieces of its variables; of others all variables, and of
/// each slot what OptimizerState::mine() names.
template <class Copy>
std::vector<HeldNumbers> held_by(Copy& copy) {
  if constexpr (requires { { copy.held() } -> std::same_as<std::vector<HeldNumbers>>; }) {
    return copy.held();
  } else {
    if constexpr (requires { copy.in_units(); })
      if (copy.in_units()) return held_in_units(copy);
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
