// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/tensor/run_time_plan.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::nn::graph {

/// A traced network as sections are cut from it.
template <class Net, class D> WholeNetwork whole_of() {
  using Low  = Lowered<Net, D>;
  auto whole = WholeNetwork{Low::calls, Low::calls.uses, Low::calls.variables, Low::calls.inputs, Low::trains};
  if constexpr (requires {
                  { Net::products } -> std::convertible_to<Products>;
                })
    whole.products = Net::products;
  return whole;
}

/// The variables that the sections of one stage use, in the order of the network.
struct StageVariables {
  std::vector<int> of_network;  // number of each in the network
  std::vector<int> owner;       // section that uses it first, which owns it
  std::vector<NamedShape> shapes;
};

/// The sections that use a variable, ascending.
///
/// ends      of all sections, see cut_of
inline std::vector<int> users_of(WholeNetwork const& whole, std::vector<int> const& ends, int variable) {
  auto users = std::vector<int>{};
  for (std::size_t c = 0; c < whole.g.calls.size(); ++c)
    for (int i = 0; i < whole.g.calls[c].uses; ++i)
      if (whole.uses[at(whole.g.calls[c].first_use + i)] == variable)
        if (auto const x = whole.section_of(ends, static_cast<int>(c)); users.empty() || users.back() != x)
          users.push_back(x);
  return users;
}

/// The variables of the stage that a schedule is for.
///
/// ends      of all sections, see cut_of
template <class Net>
StageVariables stage_variables(WholeNetwork const& whole, std::vector<int> const& ends,
                               pipelines::StageSchedule const& schedule) {
  auto made = StageVariables{};
  for (std::size_t v = 0; v < whole.variables.size(); ++v) {
    auto const users = users_of(whole, ends, static_cast<int>(v));
    if (!std::ranges::any_of(users, [&](int x) { return schedule.owns(x); })) continue;
    auto const& planned = nn::plan_of<Net>.variables[v];
    auto const& spec    = planned.spec;
    made.of_network.push_back(static_cast<int>(v));
    made.owner.push_back(users.front());
    made.shapes.push_back({.name     = std::string{std::string_view{planned.name}},
                           .dims     = {spec.dims.begin(), spec.dims.begin() + spec.rank},
                           .init     = spec.init,
                           .fan_in   = spec.fan_in,
                           .fan_out  = spec.fan_out,
                           .momentum = spec.momentum,
                           .layer    = planned.layer,
                           .tracked  = spec.tracked});
  }
  return made;
}

}  // namespace chorale::nn::graph
