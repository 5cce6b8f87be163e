// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/trace/records.hpp>

#include <cstddef>
#include <string_view>
#include <vector>

namespace chorale::nn::graph {

/// True if a layer of the network is split over an axis, of one rank or several.
template <class Calls> constexpr bool is_split(Calls const& g) {
  for (auto const& call : g.calls)
    if (!call.ops->axis.empty()) return true;
  return false;
}

/// True if gradients of variables are added up over the ranks along an axis, as each rank has a part of the positions.
template <class Calls> constexpr bool has_sums(Calls const& g) {
  for (auto const& variable : g.variables)
    if (!variable.summed.empty()) return true;
  return false;
}

/// True if a share of a batch is computed at once, and not slice by slice: ranks along an axis compute it together, or a
/// layer says that what comes of a row depends on others.
template <class Calls> constexpr bool is_in_one_piece(Calls const& g) {
  for (auto const& call : g.calls)
    if (call.ops->axis_size > 1 || call.ops->whole_share) return true;
  return false;
}

/// An axis of a mesh that a network asks for.
struct AxisAsked {
  std::string_view name{};
  int size       = 1;
  bool same_rows = false;  // of a batch: a layer needs them on all ranks
};

/// The axes of several ranks that layers of the network are split over, each once, in the order of calls.
template <class Calls> constexpr std::vector<AxisAsked> axes_asked(Calls const& g) {
  auto all = std::vector<AxisAsked>{};
  for (auto const& call : g.calls) {
    if (call.ops->axis_size == 1) continue;
    auto is_new = true;
    for (auto& axis : all) {
      if (axis.name != call.ops->axis || axis.size != call.ops->axis_size) continue;
      is_new         = false;
      axis.same_rows = axis.same_rows || !call.ops->other_rows;
    }
    if (is_new) all.push_back({call.ops->axis, call.ops->axis_size, !call.ops->other_rows});
  }
  return all;
}

}  // namespace chorale::nn::graph
