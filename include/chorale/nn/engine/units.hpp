// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/nn/engine/split_calls.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/trace.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace chorale::nn::graph {

/// The units of a network, in arrays. See UnitsView.
template <Counts N> struct Units {
  std::array<int, N.calls> of_call{}, first_call{};
  std::array<int, N.variables> of_variable{};
  std::size_t turns = 0;
  bool keeps        = false;

  constexpr UnitsView view() const { return {of_call, of_variable, first_call, turns, keeps}; }
};

/// Cuts a traced network into units: as many calls in turn as have no more variables than the largest call has, so that
/// fewer messages take no more memory. The calls of an nn::Recompute are one, as backward computes them again together.
///
/// planned   the plan's variables
/// keeps     variables that several calls use, and all variables of layers where some are not trained, are in a unit
///           that is kept for a step: calls far apart write their gradients, or forward does
template <Counts N> constexpr Units<N> cut_units(Fixed<N> const& g, Span<PlannedVariable const> planned) {
  auto made = Units<N>{};
  made.of_call.fill(-1);
  auto const each_use = [&](CallRecord const& call, auto&& f) {
    for (int i = 0; i < call.uses; ++i) f(at(g.uses[at(call.first_use + i)]));
  };
  auto const is_kept = [&](CallRecord const& call) {
    auto kept = false;
    each_use(call, [&](std::size_t v) { kept = kept || g.variables[v].users > 1 || !g.variables[v].spec.trained(); });
    return kept;
  };
  auto const takes_turns = [&](CallRecord const& call) { return call.uses > 0 && !is_kept(call); };
  // The elements of call c, or of the calls of its Recompute from c on.
  auto const size_from   = [&](std::size_t c) {
    auto size       = std::size_t{0};
    auto const mine = g.calls[c].recompute;
    for (auto i = c; i < N.calls && (i == c || (mine >= 0 && g.calls[i].recompute == mine)); ++i)
      if (takes_turns(g.calls[i])) each_use(g.calls[i], [&](std::size_t v) { size += plan::aligned(planned[v].size); });
    return size;
  };
  auto const each_group = [&](auto&& f) {  // f(call, whether it begins a group)
    auto last = -1;
    for (std::size_t c = 0; c < N.calls; ++c) {
      if (!takes_turns(g.calls[c])) continue;
      f(c, g.calls[c].recompute < 0 || g.calls[c].recompute != last);
      last = g.calls[c].recompute;
    }
  };
  auto largest = std::size_t{0};
  each_group([&](std::size_t c, bool begins) {
    if (begins) largest = std::max(largest, size_from(c));
  });
  auto filled = largest;  // of the last unit
  each_group([&](std::size_t c, bool begins) {
    auto const size = begins ? size_from(c) : 0;
    if (begins && filled + size > largest) {
      made.first_call[made.turns++] = static_cast<int>(c);
      filled                        = 0;
    }
    filled += size;
    made.of_call[c] = static_cast<int>(made.turns) - 1;
    each_use(g.calls[c], [&](std::size_t v) { made.of_variable[v] = static_cast<int>(made.turns) - 1; });
  });
  for (std::size_t c = 0; c < N.calls; ++c) {
    if (g.calls[c].uses == 0 || !is_kept(g.calls[c])) continue;
    made.keeps      = true;
    made.of_call[c] = static_cast<int>(made.turns);
    each_use(g.calls[c], [&](std::size_t v) { made.of_variable[v] = static_cast<int>(made.turns); });
  }
  return made;
}

/// Refuses a network that has no units. A function, as clang abandons a class with a failed static_assert.
template <class Net> constexpr void check_units() {
  static_assert(
      plan_for<Net>().table_elements == 0 || !axes_asked(Traced<Net, NoDevice>::calls).empty(),
      "chorale: under ShardedStrategy a replica has a shard of all variables, and the gradients of a table of "
      "this network are rows. Write nn::Embedding<rows, width, nn::DenseGradient>, or use "
      "MultiWorkerMirroredStrategy");  // one along an Axis is refused by Live
}

/// The units of network Net on device D.
template <class Net, class D> struct UnitsOf {
  static constexpr auto const& plan = plan_for<Net>();
  static constexpr auto arrays      = (check_units<Net>(), cut_units(Traced<Net, D>::calls, plan.variables));
  static constexpr UnitsView view   = arrays.view();
};

}  // namespace chorale::nn::graph
