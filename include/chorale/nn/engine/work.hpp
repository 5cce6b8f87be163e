// SPDX-License-Identifier: Apache-2.0
//
// What a step of a network must compute, counted from its calls.
#pragma once

#include <chorale/model/work.hpp>
#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/trace/records.hpp>

#include <array>
#include <cstddef>

namespace chorale::nn::graph {

/// Counts the work of a step from the calls of a network. A product of x and a variable has two more in backward: one
/// for the gradient by the variable, unless it is not trained, and one for that by x, unless nobody needs it. A product
/// of two values has one more for each of them that is needed, and an inner one of a layer has both.
///
/// keeps   additions, and layers without products, count as nothing; so do values that are computed again
template <Counts N> constexpr NetworkWork work_of(Fixed<N> const& g) {
  auto const trains = trained_values(g);
  auto reached      = std::array<bool, N.values>{};  // by backward
  for (auto const v : g.outputs) reached[at(v)] = true;
  auto work = NetworkWork{};
  for (std::size_t c = N.calls; c-- > 0;) {
    auto const& call = g.calls[c];
    auto const in    = [&](int i) { return at(g.ins[at(call.first_in + i)]); };
    auto wanted      = 0;  // inputs whose gradient is needed
    auto trained     = false;
    auto counts      = false;  // true if backward runs this call
    auto lookups     = std::size_t{0};
    for (int i = 0; i < call.ins; ++i) wanted += trains[in(i)] ? 1 : 0;
    for (int i = 0; i < call.uses; ++i) {
      auto const& v = g.variables[at(g.uses[at(call.first_use + i)])];
      trained       = trained || v.spec.trained();
      if (v.users == v.users_by_rows && v.spec.rank == 2)
        lookups += g.values[in(0)].size * static_cast<std::size_t>(v.spec.dims[1]);
    }
    auto& to = g.values[in(0)].ragged >= 0 ? work.of_position : work.of_row;
    for (int i = 0; i < call.outs; ++i) {
      auto const v = at(call.first_out + i);
      counts       = counts || reached[v];
      if (!call.ops->renames)
        (g.values[v].ragged >= 0 ? work.of_position : work.of_row).activations += g.values[v].size;
    }
    to.forward += call.products;
    to.lookups += lookups;
    if (!counts || (wanted == 0 && !trained)) continue;
    for (int i = 0; i < call.ins; ++i) reached[in(i)] = reached[in(i)] || trains[in(i)];
    auto const outer = call.products - call.inner;
    to.backward += 2 * call.inner;
    if (call.uses > 0) to.backward += outer * ((trained ? 1U : 0U) + (wanted > 0 ? 1U : 0U));
    else to.backward += 2 * outer * at(wanted) / at(call.ins);
  }
  return work;
}

}  // namespace chorale::nn::graph
