// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/placement/moves.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>

#include <cstddef>
#include <vector>

namespace chorale {

/// Consecutive numbers of the state of a copy, and where they are: variables are array 0 and laid out as
/// Variables::values, slot k of the optimizer is array 1 + k.
struct HeldNumbers {
  placement::Held held;
  float* at = nullptr;
};

/// All numbers of the state of a copy: of one in units its shard, of others all variables, and of each slot what
/// OptimizerState::mine() names.
template <class Copy> std::vector<HeldNumbers> held_by(Copy& copy) {
  constexpr auto slots = static_cast<std::size_t>(Copy::optimizer_slots);
  auto all             = std::vector<HeldNumbers>{};
  auto const add_whole = [&](Variables const& variables) {
    auto const values = variables.values;
    auto const tables = Range{values.size() - variables.tables, values.size()};
    all.push_back({{0, {plan::header, tables.begin - plan::trailer}}, values.data() + plan::header});
    if (tables.size() != 0) all.push_back({{0, tables}, values.data() + tables.begin});
  };
  auto const add_slots = [&](Range range, std::size_t stride, std::size_t at) {
    for (std::size_t k = 0; k < slots; ++k)
      all.push_back({{static_cast<int>(k) + 1, range}, copy.optimizer.slots().data() + k * stride + at});
  };
  if constexpr (requires { copy.units().cut(); })
    if (copy.in_units()) {
      auto& memory = copy.units();
      if (!memory.splits()) add_whole({memory.variables(), copy.net.variables().plan});
      for (auto const& run : memory.cut().runs_of(memory.shard().rank)) {
        if (memory.splits())
          all.push_back(
              {{0, {run.range.begin + plan::header, run.range.end + plan::header}}, memory.values().data() + run.at});
        add_slots(run.range, memory.held(), run.at);
      }
      return all;
    }
  add_whole(copy.net.variables());
  if (!copy.optimizer.slots().empty()) {
    auto const stride = copy.optimizer.slots().size() / slots;  // with tables: more than the dense variables
    auto const mine   = copy.optimizer.mine();
    add_slots(stride == mine.size() ? mine : Range{0, stride}, stride, 0);
  }
  return all;
}

}  // namespace chorale
