// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/trace/records.hpp>

namespace chorale::nn::graph {

/// Which steps of backward are needed, where it is for a training step, or for gradients by inputs alone.
///
/// Low   Lowered<Net, D>, a traced network
template <class Low> struct Needs {
  static constexpr auto const& g = Low::calls;

  /// True if each step of the schedule is needed.
  template <For what> static constexpr bool all = what == For::step && Low::step == Low::trains;

  /// For each value whether its gradient is needed.
  static constexpr auto const& values(For what) { return what == For::step ? Low::step : Low::inputs; }

  /// True if the gradient by an input of a call is needed.
  static constexpr bool dx(CallRecord const& call, For what) {
    auto wants = false;
    for (int i = 0; i < call.ins; ++i) wants = wants || values(what)[at(g.ins[at(call.first_in + i)])];
    return wants;
  }

  /// True if a step of a schedule is needed.
  static bool step(Instruction const& step, Schedule const& schedule, For what) {
    switch (step.what) {
      case Do::backward: {
        auto const& call = g.calls[at(step.call)];
        return (what == For::step && call.uses > 0) || dx(call, what);
      }
      case Do::add:
      case Do::zero: return values(what)[at(schedule.registers[at(step.c)].value)];
      case Do::again: return true;
      case Do::variables:
      case Do::ready: break;
    }
    return what == For::step;
  }
};

}  // namespace chorale::nn::graph
