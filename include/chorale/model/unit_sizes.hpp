// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/placement/shard_cut.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale::detail {

/// Elements of a unit of a network. See UnitMemory.
constexpr std::size_t size_of_unit(PlanView const& plan, UnitsView const& units, std::size_t unit) {
  auto sum = std::size_t{0};
  for (std::size_t i = 0; i < plan.variables.size(); ++i)
    if (static_cast<std::size_t>(units.of_variable[i]) == unit) sum += plan::aligned(plan.variables[i].size);
  return sum;
}
/// Where the shards of ranks end in a unit.
constexpr std::vector<std::size_t> unit_ends(std::size_t elements, int ranks) {
  auto ends = std::vector<std::size_t>{};
  for (int rank = 0; rank < ranks; ++rank) ends.push_back(placement::Shard{rank, ranks}.of(elements).end);
  return ends;
}
/// Numbers that each rank reports of its shard where the global norm is clipped. See ShardReport.
inline std::size_t report_of_units(PlanView const& plan, UnitsView const& units, int ranks) {
  auto const memory = UnitMemory{plan, units, {0, ranks}, 0, false};
  auto nodes        = std::vector<std::size_t>(static_cast<std::size_t>(ranks));
  for (auto const& run : memory.cut().runs())
    nodes[static_cast<std::size_t>(run.rank)] += placement::nodes_in(run.range);
  return 1 + (memory.cut().parts() == 1 ? SquareTree::most_nodes(SquareTree::lines(memory.cut().elements()))
                                        : *std::ranges::max_element(nodes));
}

}  // namespace chorale::detail
