// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class: its stages, its schedule and the memory of both know each other's places.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/engine/overlay.hpp>
#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace chorale::nn {

/// One micro-batch in one section of a network, on one device and for one number of rows: as a GraphExecutor, but for
/// calls that are known when the program runs, and with backward by values and by variables apart where a schedule
/// wants that.
///
/// keeps     one block of memory. Gradients of variables are written, or added, where they belong, see add_to(); what
///           is computed before its time, because a layer computes both at once, waits in the executor's own memory
/// cost      forward and backward allocate nothing. Adding is a pass over the gradients of variables that the layer
///           makes as it computes them, or one more of layers that only set them
template <class D> class SectionExecutor {
  using K = Kernels<D>;

 public:
  /// Where the variables of the network lie: for each the planned one, or null if the section does not use it.
  using Places = std::vector<PlannedVariable const*>;

  /// gradients where they are at first, see add_to()
  /// apart     true: backward by values and by variables are apart
  SectionExecutor(graph::Section const& section, Places const& variables, int rows, Span<float> values,
                  Span<float> gradients, bool apart, D const& device = {})
      : SectionExecutor{LaidOut{}, section, variables, rows, values, gradients, apart, &device} {
    for (std::size_t c = section.records().calls.size(); c-- > 0;) bind(c);  // readers first: they ask writers
  }
  SectionExecutor(SectionExecutor const&)            = delete;
  SectionExecutor& operator=(SectionExecutor const&) = delete;
  ~SectionExecutor() { destroy(stages_.size()); }

  /// Bytes that an executor of so many rows allocates: its kernels are made for that, and nothing is allocated.
  static std::size_t planned_bytes(graph::Section const& section, Places const& variables, int rows, bool apart) {
    return SectionExecutor{LaidOut{}, section, variables, rows, {}, {}, apart, nullptr}.total_;
  }

  int rows() const { return rows_; }
  std::size_t bytes() const { return memory_.size(); }

  /// Sets input i of the network for the next passes: (rows, field). It lives until backward.
  void read(std::size_t i, void const* x) {
    auto const g = section_->records();
    for (auto const& [input, value] : section_->inputs())
      if (input == static_cast<int>(i)) each_reader(g, value, x);
  }
  /// Memory of a value that arrives: (rows, its size), to be written before forward. All readers of one value
  /// share it.
  float* arrival(std::size_t i) const { return reinterpret_cast<float*>(arrivals_[i]); }
  /// The gradient by that value, as far as its reader gives it, after backward; until the next forward. The loss writes
  /// the gradient by an output of the network.
  float* d_arrival(std::size_t i) const {
    if (section_->arrivals()[i].local < 0) return d_outputs_[i];
    return registers_[graph::at(s_.d_value[graph::at(section_->arrivals()[i].local)])];
  }
  /// A value that leaves, after forward; until backward.
  float const* departure(std::size_t i) const {
    return reinterpret_cast<float const*>(values_[graph::at(section_->departures()[i].local)]);
  }
  /// Memory of the gradient by it, as far as that reader gives it: to be written between forward and backward.
  float* d_departure(std::size_t i) const { return registers_[graph::at(s_.d_output[i])]; }
  /// Bytes of a value of the section, for all rows.
  std::size_t bytes_of(graph::Crossing const& one) const {
    return static_cast<std::size_t>(rows_) * section_->whole().g.values[graph::at(one.value)].bytes;
  }

  /// Computes the values of the section from the values that have arrived.
  ///
  /// between   called after each layer
  template <class Between> void forward(Pass const& pass, Between const& between) {
    if (!own_gradients_.empty()) std::ranges::fill(own_gradients_, 0.0F);
    auto const g = section_->records();
    for (std::size_t c = 0; c < g.calls.size(); ++c) {
      g.calls[c].ops->forward(stage(c), of_call(c, pass));
      between();
    }
  }

  /// Sets where backward writes gradients of variables: laid out as the plan of the stage says, zeros before the first
  /// micro-batch.
  ///
  /// is_first  true: no micro-batch has gone backward through this section with these gradients
  void add_to(Span<float> gradients, bool is_first) {
    is_first_ = is_first;
    if (gradients.data() == of_gradients_.data()) return;
    of_gradients_ = gradients;
    auto const g  = section_->records();
    for (std::size_t c = 0; c < g.calls.size(); ++c)
      for (int i = 0; i < g.calls[c].uses && own_place(c) == nullptr; ++i)
        g.calls[c].ops->move(stage(c), graph::at(i), of_gradients_.data() + planned(g.calls[c], i).offset);
  }

  /// Computes gradients by the values that arrived and by variables, from those by the values that left.
  ///
  /// between   called after each layer
  template <class Between> void backward(Pass const& pass, Between const& between) {
    auto const g = section_->records();
    for (auto const& step : s_.steps) {
      if (step.what != graph::Do::backward) {
        run(step, pass);
        continue;
      }
      auto const c = graph::at(step.call);
      auto part    = of_call(c, pass);
      if (adds_now(c)) {
        g.calls[c].ops->add(stage(c), pass);
        part.by_variables = false;
      }
      g.calls[c].ops->backward(stage(c), part);
      add_up(c);
      between();
    }
    for (std::size_t c = 0; c < own_.size(); ++c)
      if (own_[c] != 0) add_own(c);
  }
  /// Computes gradients by the values that arrived; those by variables may wait for backward_by_weights().
  ///
  /// between   called after each layer
  template <class Between> void backward_by_inputs(Pass const& pass, Between const& between) {
    auto const g = section_->records();
    for (auto const& step : s_.steps) {
      if (step.what != graph::Do::backward) {
        run(step, pass);
        continue;
      }
      auto const c     = graph::at(step.call);
      auto const& call = g.calls[c];
      if (call.uses > 0 && !wants_dx(call)) continue;  // as a whole, later
      auto part         = of_call(c, pass);
      part.by_variables = call.uses > 0 && !call.ops->apart;
      call.ops->backward(stage(c), part);
      between();
    }
  }
  /// Computes the gradients by variables that backward_by_inputs() has left.
  ///
  /// between   called after each layer
  template <class Between> void backward_by_weights(Pass const& pass, Between const& between) {
    auto const g = section_->records();
    for (auto const& step : s_.steps) {
      if (step.what != graph::Do::variables) continue;
      auto const c  = graph::at(step.call);
      auto part     = of_call(c, pass);
      part.by_input = false;
      if (adds_now(c)) g.calls[c].ops->add(stage(c), part);
      else g.calls[c].ops->backward(stage(c), part);
      add_up(c);
      between();
    }
    for (std::size_t c = own_.size(); c-- > 0;)
      if (own_[c] != 0) add_own(c);
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  struct LaidOut {};

  /// Makes the stages, and decides where everything lies. Without a device nothing is allocated.
  SectionExecutor(LaidOut, graph::Section const& section, Places const& variables, int rows, Span<float> values,
                  Span<float> gradients, bool apart, D const* device)
      : section_{&section}, rows_{rows}, apart_{apart}, variables_{variables}, of_values_{values},
        of_gradients_{gradients} {
    auto const g       = section.records();
    runtime_.rounds_to = section.whole().products;  // before kernels are made
    make_stages();
    auto finds = std::vector<graph::Finds>{};
    for (std::size_t c = 0; c < g.calls.size(); ++c) finds.push_back(g.calls[c].ops->finds(stage(c)));
    auto copies = std::vector<char>(g.calls.size()), later = copies;
    for (std::size_t c = 0; c < g.calls.size(); ++c) {
      auto const& ops = *g.calls[c].ops;
      copies[c]       = ops.passes_all != nullptr && !ops.passes_all(stage(c));
      own_.push_back(keeps_own(g.calls[c]) ? 1 : 0);
      later[c] = apart && g.calls[c].uses > 0 && (ops.apart || !wants_dx(g.calls[c]));
    }
    s_ = graph::Scheduler{g, section.trains(), copies, finds, later}.schedule();
    lay_out(finds, device);
  }

  void* stage(std::size_t c) { return &lines_[begins_[c]]; }
  void const* stage(std::size_t c) const { return &lines_[begins_[c]]; }

  bool wants_dx(graph::CallRecord const& call) const {
    auto const g = section_->records();
    auto wants   = false;
    for (int i = 0; i < call.ins; ++i) wants = wants || section_->trains()[graph::at(g.in(call, i))];
    return wants;
  }
  graph::VariableRecord const& variable(graph::CallRecord const& call, int i) const {
    auto const& whole = section_->whole();
    return whole.variables[graph::at(whole.uses[graph::at(call.first_use + i)])];
  }
  PlannedVariable const& planned(graph::CallRecord const& call, int i) const {
    return *variables_[graph::at(section_->whole().uses[graph::at(call.first_use + i)])];
  }
  /// The pass of a call: as in evaluation, if its moving averages are frozen.
  Pass of_call(std::size_t c, Pass pass) const {
    if (pass.frozen.empty()) return pass;
    auto const& call = section_->records().calls[c];
    auto const uses  = section_->whole().uses.subspan(graph::at(call.first_use), graph::at(call.uses));
    pass.training    = pass.training &&
                    !graph::keeps_averages(uses, pass.frozen, [this](int v) { return variables_[graph::at(v)]->spec; });
    return pass;
  }
  /// True if a call writes gradients of variables in memory of this executor, until they may be added to the others: it
  /// writes them in forward, as targets of moving averages, or with the gradient by its input.
  bool keeps_own(graph::CallRecord const& call) const {
    auto keeps = call.uses > 0 && apart_ && !call.ops->apart && wants_dx(call);
    for (int i = 0; i < call.uses; ++i) keeps = keeps || !variable(call, i).spec.trained();
    return keeps;
  }
  /// True if other calls use variables of a call, too.
  bool is_shared(graph::CallRecord const& call) const {
    auto shared = false;
    for (int i = 0; i < call.uses; ++i) shared = shared || variable(call, i).users > 1;
    return shared;
  }
  /// True if a call sets gradients elsewhere, from where they are added: it cannot add itself, or would add to what
  /// other calls have set in an order that one device does not have.
  bool needs_scratch(std::size_t c) const {
    auto const& call = section_->records().calls[c];
    if (call.uses == 0 || (call.ops->adds && call.ops->move != nullptr)) return false;
    return is_shared(call) || call.ops->can_add == nullptr || !call.ops->can_add(stage(c));
  }
  /// True if a call, which sets gradients in the first micro-batch, adds in this one.
  bool adds_now(std::size_t c) const {
    auto const& call = section_->records().calls[c];
    return !is_first_ && call.uses > 0 && own_[c] == 0 && !call.ops->adds && !needs_scratch(c);
  }
  static std::size_t padded(PlannedVariable const& v) { return plan::aligned(v.size); }

  /// For each value, true if it must be rows of plain numbers: it leaves, or is read by a call that takes nothing else.
  static std::vector<char> plain_values(graph::Records const& g) {
    auto plain = std::vector<char>(g.values.size());
    for (auto const v : g.outputs) plain[graph::at(v)] = 1;
    for (auto c = g.calls.size(); c-- > 0;) {
      auto const& call = g.calls[c];
      auto const needs = !call.ops->takes_layouts || (call.ops->keeps_layout && plain[graph::at(call.first_out)] != 0);
      for (int i = 0; i < call.ins; ++i)
        if (needs) plain[graph::at(g.in(call, i))] = 1;
    }
    return plain;
  }

  void make_stages() {
    auto const g     = section_->records();
    auto const plain = plain_values(g);
    auto layouts     = std::vector<void const*>(g.values.size());
    auto total       = std::size_t{0};
    for (auto const& call : g.calls) {
      begins_.push_back(total);
      total += (call.ops->size + sizeof(Line) - 1) / sizeof(Line);
    }
    lines_.resize(total);
    auto in = std::vector<void const*>{};
    for (std::size_t c = 0; c < g.calls.size(); ++c) {
      auto const& call = g.calls[c];
      auto const y     = graph::at(call.first_out);
      in.clear();
      for (int i = 0; i < call.ins; ++i) in.push_back(layouts[graph::at(g.in(call, i))]);
      try {
        call.ops->make(stage(c), {&runtime_, rows_, call.number, wants_dx(call), plain[y] != 0, in, nullptr});
      } catch (...) {
        destroy(c);
        throw;
      }
      if (call.ops->layout != nullptr) layouts[y] = call.ops->layout(stage(c));
      stages_.push_back(stage(c));
    }
  }
  void destroy(std::size_t number) {
    while (number-- > 0) section_->records().calls[number].ops->destroy(stage(number));
  }

  std::size_t bytes_of_value(graph::Records const& g, std::size_t v) const {
    auto const call = g.values[v].call;
    if (call >= 0 && g.calls[graph::at(call)].ops->layout != nullptr)
      if (auto const* const l = g.calls[graph::at(call)].ops->layout(stage(graph::at(call))); l != nullptr)
        return K::bytes(*static_cast<typename K::layout const*>(l));
    return static_cast<std::size_t>(rows_) * g.values[v].bytes;
  }

  /// Decides where everything lies in one block of memory.
  void lay_out(std::vector<graph::Finds> const& finds, D const* device) {
    auto const g     = section_->records();
    auto const used  = graph::Lifetimes{g, s_, finds, false};
    auto const all   = std::vector<graph::Lifetime>{{0, static_cast<int>(g.calls.size() + s_.steps.size()) + 1}};
    auto const calls = g.values.size(), regs = calls + g.calls.size(), more = regs + s_.registers.size();
    auto const& in = section_->arrivals();
    auto pieces    = std::vector<graph::Piece>(more + 2 + 2 * in.size());
    for (std::size_t v = 0; v < g.values.size(); ++v) {
      bytes_.push_back(bytes_of_value(g, v));
      auto& piece = pieces[graph::at(s_.buffer[v])];
      if (g.values[v].call >= 0) piece.bytes = std::max(piece.bytes, bytes_[v]);
      pieces[v].used = used.of_value(v);
    }
    for (std::size_t c = 0; c < g.calls.size(); ++c) {
      pieces[calls + c].bytes = g.calls[c].ops->workspace(stage(c));
      pieces[calls + c].used  = used.of_workspace(c);
    }
    for (std::size_t r = 0; r < s_.registers.size(); ++r) {
      pieces[regs + r].used = used.of_register(r);
      if (used.home(r) < 0) continue;
      auto& bytes = pieces[regs + graph::at(used.home(r))].bytes;
      bytes       = std::max(bytes, bytes_[graph::at(s_.registers[r].value)]);
    }
    auto own = std::size_t{0};
    for (std::size_t c = 0; c < g.calls.size(); ++c) {
      auto n = std::size_t{0};
      for (int i = 0; i < g.calls[c].uses; ++i) n += padded(planned(g.calls[c], i)) * sizeof(float);
      if (own_[c] != 0) own += n;
      else if (needs_scratch(c)) pieces[more].bytes = std::max(pieces[more].bytes, n);
    }
    pieces[more].used = pieces[more + 1].used = all;
    pieces[more + 1].bytes                    = own;
    for (std::size_t i = 0; i < in.size(); ++i) {
      auto& value = pieces[more + 2 + 2 * i];
      value.used = pieces[more + 3 + 2 * i].used = all;
      if (first_of(i) == i) value.bytes = bytes_of(in[i]);
      if (in[i].local < 0) pieces[more + 3 + 2 * i].bytes = bytes_of(in[i]);
    }

    total_ = graph::overlay(pieces);
    if (device == nullptr) return;
    memory_           = device->allocate(total_);
    auto* const base  = memory_.data();
    auto const place  = [&](std::size_t piece) { return base + pieces[piece].offset; };
    auto const floats = [&](std::size_t piece) { return reinterpret_cast<float*>(place(piece)); };
    for (std::size_t i = 0; i < in.size(); ++i) {
      arrivals_.push_back(place(more + 2 + 2 * first_of(i)));
      d_outputs_.push_back(in[i].local < 0 ? floats(more + 3 + 2 * i) : nullptr);
    }
    values_.resize(g.values.size());
    for (std::size_t v = 0; v < g.values.size(); ++v)
      if (g.values[v].call >= 0) values_[v] = place(graph::at(s_.buffer[v]));
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i].local >= 0) values_[graph::at(in[i].local)] = arrivals_[i];
    registers_.resize(s_.registers.size());
    for (std::size_t r = 0; r < s_.registers.size(); ++r)
      if (auto const home = used.home(r); home >= 0) registers_[r] = floats(regs + graph::at(home));
    for (std::size_t c = 0; c < g.calls.size(); ++c) workspaces_.push_back(place(calls + c));
    scratch_       = floats(more);
    own_gradients_ = {floats(more + 1), own / sizeof(float)};
  }
  /// The first arrival of the value of arrival i.
  std::size_t first_of(std::size_t i) const {
    auto const& in = section_->arrivals();
    auto first     = std::size_t{0};
    while (in[first].value != in[i].value) ++first;
    return first;
  }

  /// Where a call writes the gradients of its variables; null: where they belong.
  float* own_place(std::size_t c) const {
    auto const g = section_->records();
    if (own_[c] == 0) return needs_scratch(c) ? scratch_ : nullptr;
    auto* to = own_gradients_.data();
    for (std::size_t before = 0; before < c; ++before)
      for (int i = 0; own_[before] != 0 && i < g.calls[before].uses; ++i) to += padded(planned(g.calls[before], i));
    return to;
  }

  void bind(std::size_t c) {
    auto const g     = section_->records();
    auto const& call = g.calls[c];
    auto in = std::vector<graph::Port>{}, out = in, variables = in;
    for (int i = 0; i < call.ins; ++i) {
      auto const k = graph::at(call.first_in + i);
      auto const v = graph::at(g.ins[k]);
      in.push_back({.data     = values_[v],
                    .gradient = s_.d_in[k] < 0 ? nullptr : registers_[graph::at(s_.d_in[k])],
                    .field    = g.values[v].field});
    }
    for (int i = 0; i < call.outs; ++i) {
      auto const v = graph::at(call.first_out + i);
      out.push_back({values_[v], s_.d_value[v] < 0 ? nullptr : registers_[graph::at(s_.d_value[v])]});
    }
    auto* own = own_place(c);
    for (int i = 0; i < call.uses; ++i) {
      auto const& v = planned(call, i);
      variables.push_back({of_values_.data() + v.offset, own != nullptr ? own : of_gradients_.data() + v.offset});
      if (own != nullptr) own += padded(v);
    }
    auto const asked = [&] {
      if constexpr (requires { runtime_.relus; }) return runtime_.relus.asked();
      else return 0;
    }();
    call.ops->bind(stage(c), {in, out, variables, workspaces_[c]});
    if constexpr (requires { runtime_.relus; })  // see onednn::Relus
      for (auto const& y : out) runtime_.relus.withdraw(static_cast<float const*>(y.data), asked);
  }
  void each_reader(graph::Records const& g, int value, void const* x) {
    for (std::size_t c = 0; c < g.calls.size(); ++c)
      for (int k = 0; k < g.calls[c].ins; ++k)
        if (g.in(g.calls[c], k) == value) g.calls[c].ops->read_from(stage(c), static_cast<std::size_t>(k), x);
  }

  void run(graph::Instruction const& step, Pass const& pass) {
    auto const g = section_->records();
    if (step.what == graph::Do::again) {
      g.calls[graph::at(step.call)].ops->forward(stage(graph::at(step.call)), pass);
    } else if (step.what == graph::Do::add) {
      K::sum(bytes_[graph::at(s_.registers[graph::at(step.c)].value)] / sizeof(float), registers_[graph::at(step.a)],
             registers_[graph::at(step.b)], registers_[graph::at(step.c)]);
    } else if (step.what == graph::Do::zero) {
      std::memset(registers_[graph::at(step.c)], 0, bytes_[graph::at(s_.registers[graph::at(step.c)].value)]);
    }
  }

  /// Adds what a call has left in the scratch to the gradients of its variables. What one call alone uses is copied in
  /// the first micro-batch, as 0 + x has not always the bits of x.
  void add_up(std::size_t c) {
    if (own_[c] == 0 && needs_scratch(c)) add_from(c, scratch_, is_first_ && !is_shared(section_->records().calls[c]));
  }
  void add_own(std::size_t c) { add_from(c, own_place(c), false); }
  void add_from(std::size_t c, float const* from, bool copies) {
    auto const& call = section_->records().calls[c];
    for (int i = 0; i < call.uses; ++i) {
      auto const& v = planned(call, i);
      auto* const d = of_gradients_.data() + v.offset;
      if (copies) std::copy_n(from, v.size, d);
      else K::sum(v.size, d, from, d);
      from += padded(v);
    }
  }

  graph::Section const* section_;
  int rows_;
  bool apart_, is_first_ = true;
  Places variables_;
  Span<float> of_values_, of_gradients_;
  typename K::runtime runtime_;
  std::vector<Line> lines_;
  std::vector<std::size_t> begins_;
  std::vector<void*> stages_;  // that are made
  std::vector<char> own_;      // calls that keep gradients of variables
  graph::Schedule s_;
  std::size_t total_ = 0;  // bytes of memory_
  typename D::block memory_;
  std::vector<std::size_t> bytes_;  // of each value
  std::vector<std::byte*> values_, workspaces_, arrivals_;
  std::vector<float*> registers_, d_outputs_;
  float* scratch_ = nullptr;
  Span<float> own_gradients_;
};

}  // namespace chorale::nn
