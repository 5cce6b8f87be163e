// SPDX-License-Identifier: Apache-2.0
//
// From calls to what runs: which buffers, in which order, and when gradients are final.
#pragma once

#include <chorale/nn/graph/records.hpp>
#include <chorale/nn/graph/trace.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace chorale::nn::graph {

/// One step of backward.
///
///   backward    of call `call`
///   add         gradient c = a + b
///   zero        gradient c = 0, of an output that nobody reads
///   ready       gradients of all variables whose first user is `call` or a later call are final
enum class Do { backward, add, zero, ready };

/// A step with its operands, which are indices of registers.
struct Instruction {
  Do what  = Do::ready;
  int call = -1;
  int a = -1, b = -1, c = -1;
};

/// A gradient by a value, or a part of it. It lies in a slot of memory from the step that writes it to the last step
/// that reads it.
struct Register {
  int value = -1, last = 0, slot = -1;
};

/// The buffers of forward, the steps of backward, and where gradients lie.
template <Counts N>
struct Schedule {
  static constexpr std::size_t most = 3 * N.ins + 2 * N.outputs + N.values + 1;      // registers at most

  std::array<bool, N.values> trains{};                                     // its gradient reaches a variable or a request
  std::array<int, N.values> buffer{};                                      // the value in whose memory it lies
  std::array<Instruction, 2 * N.calls + N.ins + N.outputs + N.values + 1> steps{};
  std::array<Register, most> registers{};
  std::array<int, N.ins> d_in{};                                           // register that a call writes for an input
  std::array<int, N.values> d_value{};                                     // register of the whole gradient by a value
  std::array<int, N.outputs> d_output{};                                   // register that a loss writes
  std::size_t count = 0, used = 0, slots = 0;                              // of steps, registers, slots
};

/// Computes the Schedule of one network.
template <Counts N>
class Scheduler {
 public:
  constexpr explicit Scheduler(Fixed<N> const& g) : g_{g} {
    find_trained();
    share_buffers();
    write_steps();
    assign_slots();
  }
  constexpr Schedule<N> const& schedule() const { return s_; }

 private:
  constexpr void find_trained() {
    for (std::size_t v = 0; v < N.values; ++v) s_.trains[v] = g_.values[v].asked;
    for (auto const& call : g_.calls) {
      auto trains = call.uses > 0;
      for (int i = 0; i < call.ins; ++i) trains = trains || s_.trains[at(in(call, i))];
      for (int i = 0; i < call.outs; ++i)
        s_.trains[at(call.first_out + i)] = trains && g_.values[at(call.first_out + i)].number;
    }
  }

  /// Forward: y lies where x lay if only this call reads x, and backward does not read x.
  constexpr void share_buffers() {
    auto readers  = std::array<int, N.values>{};
    auto is_final = std::array<bool, N.values>{};
    for (auto const v : g_.ins) ++readers[at(v)];
    for (auto const v : g_.outputs) is_final[at(v)] = true;
    for (std::size_t v = 0; v < N.values; ++v) s_.buffer[v] = static_cast<int>(v);
    for (auto const& call : g_.calls) {
      if (!call.ops->overwrites || call.outs != 1 || call.ops->keeps_x) continue;
      auto const x   = at(in(call, 0));
      auto const by  = g_.values[x].call;
      auto const fit = g_.values[x].bytes == g_.values[at(call.first_out)].bytes;
      if (fit && by >= 0 && readers[x] == 1 && !is_final[x] && !g_.calls[at(by)].ops->keeps_y)
        s_.buffer[at(call.first_out)] = s_.buffer[x];
    }
  }

  /// Backward: calls in reverse. The gradients by all readers of a value are added up before its writer runs.
  constexpr void write_steps() {
    s_.d_value.fill(-1);
    s_.d_in.fill(-1);
    for (std::size_t o = 0; o < N.outputs; ++o) {
      s_.d_output[o] = make(g_.outputs[o]);
      collect(g_.outputs[o], s_.d_output[o], -1);
    }
    for (int c = static_cast<int>(N.calls); c-- > 0;) {
      auto const& call = g_.calls[at(c)];
      auto reached     = false;
      for (int i = 0; i < call.outs; ++i) reached = reached || s_.d_value[at(call.first_out + i)] >= 0;
      auto wanted = call.uses > 0;
      for (int i = 0; i < call.ins; ++i) wanted = wanted || s_.trains[at(in(call, i))];
      if (reached && wanted) write_call(c);
      if (call.uses > 0) s_.steps[s_.count++] = {Do::ready, c};
    }
    for (std::size_t v = 0; v < N.values; ++v)
      if (g_.values[v].asked && s_.d_value[v] >= 0) read(s_.d_value[v]);   // until the end
  }

  constexpr void write_call(int c) {
    auto const& call = g_.calls[at(c)];
    for (int i = 0; i < call.outs; ++i) {
      auto const v = call.first_out + i;
      if (s_.d_value[at(v)] < 0 && g_.values[at(v)].number) {
        s_.d_value[at(v)]    = make(v);
        s_.steps[s_.count++] = {Do::zero, c, -1, -1, s_.d_value[at(v)]};
      }
    }
    for (int i = 0; i < call.outs; ++i)
      if (s_.d_value[at(call.first_out + i)] >= 0) read(s_.d_value[at(call.first_out + i)]);
    for (int i = 0; i < call.ins; ++i)
      if (s_.trains[at(in(call, i))])
        s_.d_in[at(call.first_in + i)] = call.ops->passes ? s_.d_value[at(call.first_out)] : make(in(call, i));
    if (!call.ops->passes) s_.steps[s_.count++] = {Do::backward, c};
    for (int i = 0; i < call.ins; ++i)
      if (s_.d_in[at(call.first_in + i)] >= 0) collect(in(call, i), s_.d_in[at(call.first_in + i)], c);
  }

  /// Adds a part to the gradient by a value.
  constexpr void collect(int value, int part, int call) {
    auto& whole = s_.d_value[at(value)];
    if (whole < 0) {
      whole = part;
      return;
    }
    read(whole), read(part);
    auto const sum       = make(value);
    s_.steps[s_.count++] = {Do::add, call, whole, part, sum};
    whole                = sum;
  }

  constexpr int make(int value) {
    s_.registers[s_.used] = {value, static_cast<int>(s_.count), -1};
    return static_cast<int>(s_.used++);
  }
  constexpr void read(int r) { s_.registers[at(r)].last = static_cast<int>(s_.count); }

  /// A slot is free again after the last step that reads its register. An add may write over what it reads last.
  constexpr void assign_slots() {
    busy_.fill(-1);
    for (std::size_t o = 0; o < N.outputs; ++o) take(s_.d_output[o]);
    for (std::size_t k = 0; k < s_.count; ++k) {
      auto const& step = s_.steps[k];
      auto const now   = static_cast<int>(k);
      if (step.what == Do::add) {
        drop(step.a, now), drop(step.b, now);
        take(step.c);
      } else if (step.what == Do::zero) {
        take(step.c);
      } else if (step.what == Do::backward) {
        auto const& call = g_.calls[at(step.call)];
        if (call.ops->overwrites && call.outs == 1) drop_outputs(call, now);
        for (int i = 0; i < call.ins; ++i)
          if (s_.d_in[at(call.first_in + i)] >= 0) take(s_.d_in[at(call.first_in + i)]);
        drop_outputs(call, now);
      }
    }
  }
  constexpr void drop_outputs(CallRecord const& call, int now) {
    for (int i = 0; i < call.outs; ++i) drop(s_.d_value[at(call.first_out + i)], now);
  }
  constexpr void take(int r) {
    std::size_t k = 0;
    while (busy_[k] >= 0) ++k;
    busy_[k]                  = r;
    s_.registers[at(r)].slot = static_cast<int>(k);
    s_.slots                 = std::max(s_.slots, k + 1);
  }
  constexpr void drop(int r, int now) {
    if (r < 0 || s_.registers[at(r)].last > now) return;
    auto& slot = busy_[at(s_.registers[at(r)].slot)];
    if (slot == r) slot = -1;
  }

  constexpr int in(CallRecord const& call, int i) const { return g_.ins[at(call.first_in + i)]; }

  Fixed<N> const& g_;
  Schedule<N> s_{};
  std::array<int, Schedule<N>::most> busy_{};                              // register in each slot; -1: free
};

/// A network on a device: its calls, and its schedule.
template <class Net, class D>
struct Lowered : Traced<Net, D> {
  static constexpr auto schedule = Scheduler<Traced<Net, D>::counts>{Traced<Net, D>::calls}.schedule();
};

}  // namespace chorale::nn::graph
