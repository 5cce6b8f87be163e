// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/trace/records.hpp>

#include <array>
#include <cstddef>

namespace chorale::nn::graph {

/// Bytes that forward leaves for backward, for one row: of all values that backward reads, without those of
/// nn::Recompute that are computed again, and without the inputs. Known to the compiler.
///
/// keeps   at most what an executor allocates for a row: on top come workspaces, gradients by values, and ragged values
template <class Net, class D> constexpr std::size_t kept_per_row() {
  using Low               = Lowered<Net, D>;
  constexpr auto const& g = Low::calls;
  constexpr auto N        = Low::counts.values;
  auto lasts = std::array<bool, N>{}, kept = lasts;
  auto root = std::array<std::size_t, N>{};  // the value whose memory a renamed one is
  for (std::size_t v = 0; v < N; ++v) {
    root[v]  = v;
    lasts[v] = g.values[v].call < 0 || g.calls[at(g.values[v].call)].recompute < 0;
  }
  for (auto const v : g.outputs) lasts[at(v)] = true;
  for (auto const& call : g.calls)
    for (int i = 0; i < call.ins; ++i) {
      auto const v      = at(g.ins[at(call.first_in + i)]);
      auto const& value = g.values[v];
      if (value.call >= 0 && g.calls[at(value.call)].recompute != call.recompute) lasts[v] = true;
      if (call.ops->renames) root[at(call.first_out)] = root[v];
    }
  for (auto const& call : g.calls) {
    if (call.ops->passes || (call.uses == 0 && !Low::wants_dx(call))) continue;  // backward has nothing to do
    for (int i = 0; i < call.outs && call.ops->keeps_y; ++i)
      if (auto const v = at(call.first_out + i); lasts[v]) kept[root[v]] = true;
    for (int i = 0; i < call.ins && call.ops->keeps_x; ++i)
      if (auto const v = at(g.ins[at(call.first_in + i)]); lasts[v]) kept[root[v]] = true;
  }
  auto sum = std::size_t{0};
  for (std::size_t v = 0; v < N; ++v)
    if (kept[v] && g.values[v].call >= 0 && g.values[v].ragged < 0) sum += g.values[v].bytes;
  return sum;
}

}  // namespace chorale::nn::graph
