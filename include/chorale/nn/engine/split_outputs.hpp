// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/compared.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/trace.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/axis_collectives.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace chorale::nn::graph {

/// Outputs of a network of which each rank along an axis has a part of every vector, put together for predictions.
template <class Net> class SplitOutputs {
  static constexpr auto const& g = Traced<Net, NoDevice>::calls;

 public:
  /// The axis of which each rank has a part of output o; empty: the output is whole.
  static constexpr std::string_view axis(std::size_t o) { return g.values[at(g.outputs[o])].held.columns; }
  /// Ranks that have a part of output o.
  static constexpr std::size_t ranks(std::size_t o) {
    if (axis(o).empty()) return 1;
    for (auto const& call : g.calls)
      if (call.ops->axis == axis(o)) return static_cast<std::size_t>(call.ops->axis_size);
    return 1;
  }

  /// All of output o, the same on all ranks. Valid until the next call for it.
  ///
  /// part    this rank's n numbers
  float const* whole(std::size_t o, float const* part, std::size_t n, AxisGroups axes) {
    auto const count = ranks(o), columns = last_dimension[o];
    if (count == 1) return part;
    auto& memory = wholes_[o];
    memory.resize(2 * n * count);
    auto const by_rank = Span<float>{memory}.last(n * count);
    along::all_gather(group_along(axes, axis(o), static_cast<int>(count)), Span<float const>{part, n}, by_rank);
    auto* to = memory.data();
    for (std::size_t vector = 0; vector < n / columns; ++vector)
      for (std::size_t r = 0; r < count; ++r) to = std::copy_n(&by_rank[r * n + vector * columns], columns, to);
    return memory.data();
  }

 private:
  template <class... O> static constexpr std::array<std::size_t, sizeof...(O)> last_of(List<O...>) {
    return {static_cast<std::size_t>(O::back)...};
  }
  static constexpr auto last_dimension = last_of(typename OutputsIn<Net>::values{});

  std::array<std::vector<float>, last_dimension.size()> wholes_;
};

}  // namespace chorale::nn::graph
