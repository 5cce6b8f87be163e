// SPDX-License-Identifier: Apache-2.0
//
// From calls to what runs: which buffers, in which order, and when gradients are final.
#pragma once

#include <chorale/nn/trace/again.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/trace.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace chorale::nn::graph {

/// One step of backward.
///
///   again       forward of call `call`, within nn::Recompute
///   backward    of call `call`
///   variables   the gradients by variables of call `call`, which backward has left out
///   add         gradient c = a + b
///   zero        gradient c = 0, of an output that nobody reads
///   ready       gradients of all variables whose first user is `call` or a later call are final
enum class Do { again, backward, variables, add, zero, ready };

/// A step with its operands, which are indices of registers.
struct Instruction {
  Do what  = Do::ready;
  int call = -1;
  int a = -1, b = -1, c = -1;
};

/// A gradient by a value, or a part of it. It lies in a slot of memory from the step that writes it to the last step
/// that reads it.
struct Register {
  int value = -1, first = 0, last = 0, slot = -1;
  int in_place = -1;  // the register that it overwrites; -1: none
};

/// The buffers of forward, the steps of backward, and where gradients lie.
struct Schedule {
  std::vector<int> buffer;  // the value in whose memory a value lies
  std::vector<Instruction> steps;
  std::vector<Register> registers;
  std::vector<int> d_in;      // register that a call writes for an input
  std::vector<int> d_value;   // register of the whole gradient by a value
  std::vector<int> d_output;  // register that a loss writes
  std::size_t slots = 0;
};

/// What backward is for: a step, or gradients by inputs alone.
enum class For { step, inputs };

/// For each value, true if a backward for `what` needs the gradient by it.
template <Counts N> constexpr std::array<bool, N.values> needed_values(Fixed<N> const& g, For what) {
  auto needs = std::array<bool, N.values>{};
  for (std::size_t v = 0; v < N.values; ++v)
    needs[v] = g.values[v].asked && (what == For::inputs || !g.values[v].on_request);
  for (auto const& call : g.calls) {
    auto any = what == For::step && call.uses > 0;
    for (int i = 0; i < call.ins; ++i) any = any || needs[at(g.ins[at(call.first_in + i)])];
    for (int i = 0; i < call.outs; ++i) needs[at(call.first_out + i)] = any && g.values[at(call.first_out + i)].number;
  }
  return needs;
}

/// For each value, true if its gradient reaches a variable or an input whose gradient is asked for.
template <Counts N> constexpr std::array<bool, N.values> trained_values(Fixed<N> const& g) {
  auto trains       = needed_values(g, For::step);
  auto const inputs = needed_values(g, For::inputs);
  for (std::size_t v = 0; v < N.values; ++v) trains[v] = trains[v] || inputs[v];
  return trains;
}

/// For each value, true if it must be rows of plain numbers, because it is an output, or because a call that reads it
/// takes no other layout.
template <Counts N> constexpr std::array<bool, N.values> plain_values(Fixed<N> const& g) {
  auto plain = std::array<bool, N.values>{};
  for (auto const v : g.outputs) plain[at(v)] = true;
  for (std::size_t c = N.calls; c-- > 0;) {
    auto const& call = g.calls[c];
    auto const needs = !call.ops->takes_layouts || (call.ops->keeps_layout && plain[at(call.first_out)]);
    for (int i = 0; i < call.ins; ++i) {
      auto& x = plain[at(g.ins[at(call.first_in + i)])];
      x       = x || needs;
    }
  }
  return plain;
}

/// Computes the Schedule of one network. Not a template: compilers spend seconds on one for each network.
class Scheduler {
 public:
  /// trains    for each value, see trained_values
  /// copies    of each call that passes its gradient: true if that holds for its first input alone, because the others
  ///           have another layout. Empty: of none
  /// finds     of each call. Empty: of all in_backward
  /// later     of each call: true if its gradients by variables are computed after all by values. Empty: of none
  constexpr explicit Scheduler(Records const& g, Span<bool const> trains, Span<char const> copies = {},
                               Span<Finds const> finds = {}, Span<char const> later = {})
      : g_{g}, trains_{trains}, later_{later}, of_{g, trains, copies}, last_part_(g.values.size(), -1) {
    s_.d_in.resize(g.ins.size(), -1);
    s_.d_value.resize(g.values.size(), -1);
    s_.buffer.reserve(g.values.size());  // constants have a limited number of steps
    s_.registers.reserve(g.values.size());
    s_.steps.reserve(2 * g.calls.size());
    parts_.reserve(g.ins.size());
    share_buffers();
    again_ = calls_again(of_, finds, s_.buffer);
    write_steps();
    assign_slots();
  }
  constexpr Schedule const& schedule() const { return s_; }

 private:
  /// A part of a gradient: its register, and the part that was known before it.
  struct Part {
    int r = -1, older = -1;
  };

  /// Forward: y lies where x lay if only this call reads x, and neither backward nor nn::Recompute reads x.
  constexpr void share_buffers() {
    auto readers  = std::vector<int>(g_.values.size(), 0);  // clang 14 needs the 0 in constants
    auto is_final = std::vector<char>(g_.values.size(), 0);
    for (auto const v : g_.ins) ++readers[at(v)];
    for (auto const v : g_.outputs) is_final[at(v)] = 1;
    for (std::size_t v = 0; v < g_.values.size(); ++v) s_.buffer.push_back(static_cast<int>(v));
    auto const kept = [&](std::size_t x, int recompute) {  // read again after its only reader
      for (;;) {
        auto const& by = g_.calls[at(g_.values[x].call)];
        if (readers[x] != 1 || is_final[x] != 0 || by.ops->keeps_y || by.recompute != recompute) return true;
        auto const before = at(in(by, 0));
        if (!by.ops->renames || g_.values[before].call < 0) return false;
        x = before;
      }
    };
    for (auto const& call : g_.calls) {
      auto const x = at(in(call, 0));
      if (call.outs != 1 || g_.values[x].call < 0) continue;
      auto const fits =
          call.ops->overwrites && !call.ops->keeps_x && g_.values[x].bytes == g_.values[at(call.first_out)].bytes;
      if (call.ops->renames || (fits && !kept(x, call.recompute))) s_.buffer[at(call.first_out)] = s_.buffer[x];
    }
  }

  /// Computes the calls of an nn::Recompute again; c is the last of these calls.
  constexpr void write_again(int c) {
    auto first = c;
    while (first > 0 && g_.calls[at(first - 1)].recompute == g_.calls[at(c)].recompute) --first;
    for (; first <= c; ++first)
      if (again_[at(first)] != 0) s_.steps.push_back({Do::again, first});
  }

  /// Backward: calls in reverse. The gradients by all readers of a value are added up before its writer runs.
  constexpr void write_steps() {
    for (auto const value : g_.outputs) {
      s_.d_output.push_back(make(value));
      collect(value, s_.d_output.back());
    }
    for (int c = static_cast<int>(g_.calls.size()); c-- > 0;) {
      auto const& call = g_.calls[at(c)];
      auto reached     = false;
      if (call.recompute >= 0 && (at(c) + 1 == g_.calls.size() || g_.calls[at(c) + 1].recompute != call.recompute))
        write_again(c);
      for (int i = 0; i < call.outs; ++i) {
        add_up(call.first_out + i);
        reached = reached || s_.d_value[at(call.first_out + i)] >= 0;
      }
      if (reached && of_.is_wanted(call)) write_call(c);
      if (call.uses > 0) s_.steps.push_back({Do::ready, c});
    }
    for (auto c = later_.size(); c-- > 0;) {
      if (later_[c] == 0 || s_.d_value[at(g_.calls[c].first_out)] < 0) continue;
      for (int i = 0; i < g_.calls[c].outs; ++i) read(s_.d_value[at(g_.calls[c].first_out + i)]);
      s_.steps.push_back({Do::variables, static_cast<int>(c)});
    }
    for (std::size_t v = 0; v < g_.values.size(); ++v) {
      if (!g_.values[v].asked) continue;
      add_up(static_cast<int>(v));
      if (s_.d_value[v] >= 0) read(s_.d_value[v]);  // until the end
    }
  }

  constexpr void write_call(int c) {
    auto const& call = g_.calls[at(c)];
    for (int i = 0; i < call.outs; ++i) {
      auto const v = call.first_out + i;
      if (s_.d_value[at(v)] < 0 && g_.values[at(v)].number) {
        s_.d_value[at(v)] = make(v);
        s_.steps.push_back({Do::zero, c, -1, -1, s_.d_value[at(v)]});
      }
    }
    for (int i = 0; i < call.outs; ++i)
      if (s_.d_value[at(call.first_out + i)] >= 0) read(s_.d_value[at(call.first_out + i)]);
    for (int i = 0; i < call.ins; ++i)
      if (trains_[at(in(call, i))])
        s_.d_in[at(call.first_in + i)] = of_.passes(at(c), i) ? s_.d_value[at(call.first_out)] : make(in(call, i));
    if (of_.computes(at(c))) s_.steps.push_back({Do::backward, c});
    for (int i = 0; i < call.ins; ++i)
      if (s_.d_in[at(call.first_in + i)] >= 0) collect(in(call, i), s_.d_in[at(call.first_in + i)]);
  }

  /// Keeps a part of the gradient by a value, until all parts are known.
  constexpr void collect(int value, int r) {
    parts_.push_back({r, last_part_[at(value)]});
    last_part_[at(value)] = static_cast<int>(parts_.size()) - 1;
  }
  /// Adds up the parts of the gradient by a value, the part collected last first: (c + b) + a, as in nested sums.
  constexpr void add_up(int value) {
    auto part = last_part_[at(value)];
    if (part < 0) return;
    auto whole = parts_[at(part)].r;
    while ((part = parts_[at(part)].older) >= 0) {
      auto const more = parts_[at(part)].r;
      read(whole), read(more);
      auto const sum = make(value);
      s_.steps.push_back({Do::add, g_.values[at(value)].call, whole, more, sum});
      whole = sum;
    }
    s_.d_value[at(value)] = whole;
  }

  constexpr int make(int value) {
    auto const now = static_cast<int>(s_.steps.size());
    s_.registers.push_back({value, now, now});
    return static_cast<int>(s_.registers.size()) - 1;
  }
  constexpr void read(int r) { s_.registers[at(r)].last = static_cast<int>(s_.steps.size()); }

  /// A slot is free again after the last step that reads its register. An add may write over what it reads last.
  constexpr void assign_slots() {
    busy_.resize(s_.registers.size() + 1, -1);
    for (auto const r : s_.d_output) take(r);
    for (std::size_t k = 0; k < s_.steps.size(); ++k) {
      auto const& step = s_.steps[k];
      auto const now   = static_cast<int>(k);
      if (step.what == Do::add) {
        auto const near = s_.registers[at(step.a)].last == now ? step.a : step.b;
        drop(step.a, now), drop(step.b, now);
        take_over(step.c, near);
      } else if (step.what == Do::zero) {
        take(step.c);
      } else if (step.what == Do::backward) {
        auto const& call  = g_.calls[at(step.call)];
        auto const reuses = (call.ops->overwrites || call.ops->renames) && call.outs == 1 && !call.ops->passes;
        if (reuses) drop_outputs(call, now);
        for (int i = 0; i < call.ins; ++i) {
          auto const d = s_.d_in[at(call.first_in + i)];
          if (d < 0 || d == s_.d_value[at(call.first_out)]) continue;
          if (reuses) take_over(d, s_.d_value[at(call.first_out)]);
          else take(d);
        }
        drop_outputs(call, now);
      }
    }
  }
  constexpr void drop_outputs(CallRecord const& call, int now) {
    for (int i = 0; i < call.outs; ++i) drop(s_.d_value[at(call.first_out + i)], now);
  }
  /// Gives a register a free slot: `near` if that is free, else the first one.
  constexpr void take(int r, int near = 0) {
    auto k = at(near);
    if (busy_[k] >= 0) k = 0;
    while (busy_[k] >= 0) ++k;
    busy_[k]                 = r;
    s_.registers[at(r)].slot = static_cast<int>(k);
    s_.slots                 = std::max(s_.slots, k + 1);
  }
  /// Gives a register the slot of another one, if that is not read any more.
  constexpr void take_over(int r, int from) {
    auto const slot = s_.registers[at(from)].slot;
    take(r, slot);
    if (s_.registers[at(r)].slot == slot && s_.registers[at(from)].last == s_.registers[at(r)].first)
      s_.registers[at(r)].in_place = from;
  }
  constexpr void drop(int r, int now) {
    if (r < 0 || s_.registers[at(r)].last > now) return;
    auto& slot = busy_[at(s_.registers[at(r)].slot)];
    if (slot == r) slot = -1;
  }

  constexpr int in(CallRecord const& call, int i) const { return g_.in(call, i); }

  Records g_;
  Span<bool const> trains_;
  Span<char const> later_;
  Backward of_;
  std::vector<char> again_;  // calls that are computed again
  Schedule s_;
  std::vector<Part> parts_;
  std::vector<int> last_part_;  // of the gradient by each value; -1: none
  std::vector<int> busy_;       // register in each slot; -1: free
};

/// A network on a device: its calls, and what follows from them alone.
template <class Net, class D> struct Lowered : Traced<Net, D> {
  using Traced<Net, D>::calls;

  static constexpr auto trains = trained_values(calls);
  static constexpr auto step   = needed_values(calls, For::step);
  static constexpr auto inputs = needed_values(calls, For::inputs);
  static constexpr auto plain  = plain_values(calls);

  /// True if a call computes the gradient by an input.
  static constexpr bool wants_dx(CallRecord const& call) {
    auto wants = false;
    for (int i = 0; i < call.ins; ++i) wants = wants || trains[at(calls.ins[at(call.first_in + i)])];
    return wants;
  }

  /// Slots for gradients, where all layouts are equal.
  static constexpr std::size_t slots() { return Scheduler{calls, trains}.schedule().slots; }
};

}  // namespace chorale::nn::graph
