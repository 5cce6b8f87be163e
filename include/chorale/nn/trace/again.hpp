// SPDX-License-Identifier: Apache-2.0
//
// Which calls of a network backward runs, and which of them nn::Recompute computes again before.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/records.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// The records of a network of any size.
struct Records {
  Span<ValueRecord const> values;
  Span<CallRecord const> calls;
  Span<int const> ins, outputs;

  template <Counts N>
  constexpr Records(Fixed<N> const& g) : values{g.values}, calls{g.calls}, ins{g.ins}, outputs{g.outputs} {}
  constexpr Records(Span<ValueRecord const> v, Span<CallRecord const> c, Span<int const> in, Span<int const> out)
      : values{v}, calls{c}, ins{in}, outputs{out} {}

  constexpr int in(CallRecord const& call, int i) const { return ins[at(call.first_in + i)]; }
  /// The nn::Recompute in which a value is computed; -1: in none.
  constexpr int recompute(int value) const {
    auto const call = values[at(value)].call;
    return call < 0 ? -1 : calls[at(call)].recompute;
  }
};

/// True if an nn::Recompute calls layers of the network.
constexpr bool has_recompute(Records const& g) {
  for (auto const& call : g.calls)
    if (call.recompute >= 0) return true;
  return false;
}

/// For each value, true if it is in memory from its call to its last use: all, except values that nn::Recompute
/// computes again and nobody else reads.
constexpr std::vector<char> lasting_values(Records const& g) {
  auto lasts = std::vector<char>(g.values.size(), 0);
  for (std::size_t v = 0; v < lasts.size(); ++v) lasts[v] = g.recompute(static_cast<int>(v)) < 0;
  for (auto const v : g.outputs) lasts[at(v)] = 1;
  for (auto const& call : g.calls)
    for (int i = 0; i < call.ins; ++i)
      if (g.recompute(g.in(call, i)) != call.recompute) lasts[at(g.in(call, i))] = 1;
  return lasts;
}

/// What backward of each call does.
///
/// trains, copies    see Scheduler
struct Backward {
  Records g;
  Span<bool const> trains;
  Span<char const> copies;

  /// True if a call has something to give a gradient to.
  constexpr bool is_wanted(CallRecord const& call) const {
    auto wanted = call.uses > 0;
    for (int i = 0; i < call.ins; ++i) wanted = wanted || trains[at(g.in(call, i))];
    return wanted;
  }
  /// True if the gradient by input i of a call is that by its output.
  constexpr bool passes(std::size_t c, int i) const {
    return g.calls[c].ops->passes && (i == 0 || copies.empty() || copies[c] == 0);
  }
  /// True if backward of a call computes something, if it has a gradient.
  constexpr bool computes(std::size_t c) const {
    auto const& call = g.calls[c];
    auto computes    = !call.ops->passes;
    for (int i = 0; i < call.ins; ++i) computes = computes || (trains[at(g.in(call, i))] && !passes(c, i));
    return computes;
  }
};

/// For each call, true if nn::Recompute computes it again: backward reads what it gives or leaves, or a call that is
/// computed again reads that.
///
/// finds     of each call. Empty: of all in_backward
/// buffer    see Schedule
constexpr std::vector<char> calls_again(Backward const& of, Span<Finds const> finds, Span<int const> buffer) {
  auto const& g = of.g;
  auto again    = std::vector<char>(g.calls.size(), 0);
  if (!has_recompute(g)) return again;
  auto const lasts = lasting_values(g);
  auto reached     = std::vector<char>(g.values.size(), 0);  // by a gradient
  auto missing     = reached;                                // values that are read, and not in memory
  for (auto const v : g.outputs) reached[at(v)] = 1;
  auto const read = [&](int v) { return lasts[at(v)] == 0 && std::exchange(missing[at(v)], char{1}) == 0; };
  for (std::size_t c = g.calls.size(); c-- > 0;) {
    auto const& call  = g.calls[c];
    auto has_gradient = false;
    for (int i = 0; i < call.outs; ++i) has_gradient = has_gradient || reached[at(call.first_out + i)] != 0;
    if (!has_gradient || !of.is_wanted(call)) continue;
    for (int i = 0; i < call.ins; ++i)
      if (auto const v = at(g.in(call, i)); of.trains[v]) reached[v] = 1;
    if (call.recompute < 0 || !of.computes(c)) continue;
    again[c] = finds.empty() || finds[c] != Finds::nothing;
    for (int i = 0; i < call.outs && call.ops->keeps_y; ++i) read(call.first_out + i);
    for (int i = 0; i < call.ins && call.ops->keeps_x; ++i) read(g.in(call, i));
  }
  /// True if a call of the same Recompute that is computed again writes where call c writes afterwards.
  auto const is_overwritten = [&](std::size_t c) {
    for (auto d = c; d-- > 0 && g.calls[d].recompute == g.calls[c].recompute;)
      if (again[d] != 0 && buffer[at(g.calls[d].first_out)] == buffer[at(g.calls[c].first_out)]) return true;
    return false;
  };
  for (auto changed = true; std::exchange(changed, false);)
    for (std::size_t c = g.calls.size(); c-- > 0;) {
      auto const& call = g.calls[c];
      if (call.recompute < 0) continue;
      auto needed = again[c] != 0 || is_overwritten(c);
      for (int i = 0; i < call.outs; ++i) needed = needed || missing[at(call.first_out + i)] != 0;
      if (!needed) continue;
      changed = std::exchange(again[c], char{1}) == 0 || changed;
      for (int i = 0; i < call.ins; ++i) changed = read(g.in(call, i)) || changed;
    }
  return again;
}

}  // namespace chorale::nn::graph
