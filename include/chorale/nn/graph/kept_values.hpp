// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/graph/again.hpp>
#include <chorale/nn/graph/records.hpp>
#include <chorale/nn/graph/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale::nn::graph {

/// Bytes that forward leaves for backward, for one row: of all values that backward reads, those of nn::Recompute that
/// are computed again left out, and of those that share memory the largest. Known to the compiler.
///
/// keeps   at most what an executor allocates for a row: on top come workspaces, gradients by values, and ragged values
template <class Net, class D>
constexpr std::size_t kept_per_row() {
  using Low             = Lowered<Net, D>;
  constexpr auto const& g = Low::calls;
  auto const schedule   = Scheduler{g, Low::trains}.schedule();
  auto const lasts      = lasting_values(g);
  auto kept             = std::vector<char>(g.values.size());              // buffers
  auto bytes            = std::vector<std::size_t>(g.values.size());
  for (std::size_t v = 0; v < g.values.size(); ++v)
    if (auto const& value = g.values[v]; value.call >= 0 && value.ragged < 0)
      bytes[at(schedule.buffer[v])] = std::max(bytes[at(schedule.buffer[v])], value.bytes);
  auto const keep = [&](int v) {
    if (lasts[at(v)] != 0) kept[at(schedule.buffer[at(v)])] = 1;
  };
  for (auto const& step : schedule.steps) {
    if (step.what != Do::backward) continue;
    auto const& call = g.calls[at(step.call)];
    for (int i = 0; i < call.outs && call.ops->keeps_y; ++i) keep(call.first_out + i);
    for (int i = 0; i < call.ins && call.ops->keeps_x; ++i) keep(g.ins[at(call.first_in + i)]);
  }
  auto sum = std::size_t{0};
  for (std::size_t v = 0; v < kept.size(); ++v) sum += kept[v] != 0 ? bytes[v] : 0;
  return sum;
}

}  // namespace chorale::nn::graph
