// SPDX-License-Identifier: Apache-2.0
//
// One cohesive class, in one piece: its stages, its schedule and the memory of both know each other's places.
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/model/unit_memory.hpp>
#include <chorale/nn/engine/needs.hpp>
#include <chorale/nn/engine/overlay.hpp>
#include <chorale/nn/engine/ragged_inputs.hpp>
#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/engine/stages.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale::nn {

namespace graph {

/// Refuses nn::Recompute. A function, as clang abandons a class with a failed static_assert.
template <class D, bool recomputes> constexpr auto check_recompute() {
  static_assert(!QueuesWork<D> || !recomputes,
                "chorale: nn::Recompute computes on Cpu only, where memory is shared by what is not in use together. "
                "Leave it out, or use a strategy over Cpu");
}

}  // namespace graph

/// A network that the compiler has traced, laid out on one device for one number of rows and, of ragged inputs, for as
/// many positions as its buffers have room for: a loop over its calls, each through the constant table of functions of
/// its layer.
///
///   forward     calls in the order of the call operator
///   backward    calls in reverse. After the first user of a variable, `ready(end)`: gradients below `end` are final
///   layouts     a kernel chooses the layout of its output, and the calls that read it take it as it is. Only outputs,
///               and what layers read that take no other, are converted to rows of plain numbers
///
/// keeps   one block of memory, in which values, workspaces and gradients lie over one another if they are never in use
///         together: what backward does not read is overwritten, as soon as forward has read it
/// cost    forward and backward allocate nothing
/// order   forward and backward only enqueue work if the device QueuesWork: settle() before the host reads results
template <class Net, Device D> class GraphExecutor {
  using K                        = Kernels<D>;
  using Low                      = graph::Lowered<Net, D>;
  static constexpr auto const& g = Low::calls;
  static constexpr auto N        = Low::counts;
  using Needs                    = graph::Needs<Low>;
  using checked                  = decltype(graph::check_recompute<D, graph::has_recompute(g)>());

 public:
  static constexpr auto const& plan = graph::plan_for<Net>();

  /// What a batch needs: its rows and, for each ragged input, the positions that buffers have room for.
  using Rooms       = std::array<std::size_t, N.inputs>;
  /// Outputs over which the loss may write the gradient by them.
  using Overwritten = std::array<bool, N.outputs>;

  /// rows        of every batch, at least 1
  /// variables   laid out by the plan; and their gradients, which are zeros before backward
  /// tables      gradients of the variables whose gradients are rows, in the plan's order; without rows before backward
  /// rooms       of each ragged input: the most positions of a batch, rounded up
  /// overwritten   without it, gradients by outputs have memory of their own
  /// units       not null: where variables and gradients are, instead of in the first two, while units take turns
  GraphExecutor(int rows, Span<float> variables, Span<float> gradients, Span<RowGradients> tables = {},
                D const& device = {}, Rooms const& rooms = {}, Overwritten const& overwritten = {},
                UnitMemory* units = nullptr)
      : GraphExecutor{LaidOut{}, rows, rooms, overwritten, variables, gradients, tables} {
    units_           = units;
    memory_          = device.allocate(places_.total);
    auto* const base = memory_.data();
    scratch_         = reinterpret_cast<float*>(base + places_.scratch);
    registers_.resize(s_.registers.size());
    for (std::size_t v = 0; v < N.values; ++v) values_[v] = is_own(g.values[v]) ? base + places_.values[v] : nullptr;
    for (std::size_t r = 0; r < s_.registers.size(); ++r)
      if (auto const at = places_.registers[r]) registers_[r] = reinterpret_cast<float*>(base + *at);
    for (std::size_t c = N.calls; c-- > 0;)  // readers first: they ask writers
      bind(c, base + places_.workspaces[c]);
  }

  GraphExecutor(GraphExecutor const&)            = delete;  // the stages hold addresses
  GraphExecutor& operator=(GraphExecutor const&) = delete;

  /// Bytes that an executor of so many rows allocates: its kernels are made for that, and nothing is allocated.
  static std::size_t planned_bytes(int rows, Rooms const& rooms = {}, Overwritten const& overwritten = {}) {
    return GraphExecutor{LaidOut{}, rows, rooms, overwritten, {}, {}, {}}.places_.total;
  }

  int rows() const { return rows_; }

  /// Bytes of values, workspaces and gradients.
  std::size_t bytes() const { return memory_.size(); }

  /// Sets input i of the next passes: (rows, field). Backward reads it again, so it must live until then. If the device
  /// QueuesWork, copies it there, always to the same address.
  void read(std::size_t i, void const* x) {
    auto const value       = g.inputs[i];
    auto const each_reader = [&](auto&& f) {
      for (std::size_t c = 0; c < N.calls; ++c)
        for (int k = 0; k < g.calls[c].ins; ++k)
          if (g.ins[graph::at(g.calls[c].first_in + k)] == value) f(g.calls[c].ops, c, static_cast<std::size_t>(k));
    };
    if constexpr (QueuesWork<D>) {
      each_reader([&](auto const* ops, std::size_t c, std::size_t k) {
        if (ops->look != nullptr) ops->look(stages_[c], k, x);
      });
      x = runtime_.fetch(i, x, per_batch(g.values[graph::at(value)].bytes));
    }
    each_reader([&](auto const* ops, std::size_t c, std::size_t k) { ops->read_from(stages_[c], k, x); });
  }

  /// Copies ragged input i of the next passes, without its padding: (rows, width, ..), where row r has lengths[r]
  /// positions. The lengths live until backward.
  void read(std::size_t i, void const* x, std::size_t width, Span<int const> lengths) {
    ragged_.set(i, lengths);
    auto const& value = g.values[graph::at(g.inputs[i])];
    auto const* from  = static_cast<std::byte const*>(x);
    auto* to          = values_[graph::at(g.inputs[i])];
    for (auto const length : lengths) {
      to = std::copy_n(from, static_cast<std::size_t>(length) * value.bytes, to);
      from += width * value.bytes;
    }
  }

  /// True if batches of so many positions fit.
  bool has_room(Rooms const& positions) const {
    for (std::size_t i = 0; i < N.inputs; ++i)
      if (ragged_[i].room < positions[i]) return false;
    return true;
  }
  /// The rows of the last batch along the ragged dimension of input i.
  graph::RaggedRows const& ragged(std::size_t i) const { return ragged_[i]; }

  void forward(Pass const& pass) {
    for (std::size_t c = 0; c < N.calls; ++c) {
      if (units_ != nullptr) units_->forward_to(c);
      graph::in_pass(pass, keeps_averages(c, pass.frozen),
                     [&](Pass const& of_call) { g.calls[c].ops->forward(stages_[c], of_call); });
    }
  }

  /// Computes gradients of variables, and of inputs that ask for it in each step. d_output() was written before.
  template <class Ready> void backward(Pass const& pass, Ready&& ready) {
    if (units_ == nullptr)
      return backward<graph::For::step>(
          pass, [](std::size_t) {}, [&](std::size_t call) { ready(plan.ready[graph::at(g.calls[call].number)]); });
    units_->turn();
    backward<graph::For::step>(
        pass, [this](std::size_t call) { units_->backward_to(call); },
        [this](std::size_t call) { units_->passed(call); });
    units_->end();
  }
  /// Computes gradients by inputs alone. Gradients by variables are unspecified then.
  void backward_to_inputs(Pass const& pass) {
    CHORALE_EXPECTS(units_ == nullptr,
                    "gradients by inputs alone are computed where a replica has 1 of 1 parts of all "
                    "gradients: not under ShardedStrategy<Zero::two> or <Zero::three>");
    backward<graph::For::inputs>(pass, [](std::size_t) {}, [](std::size_t) {});
  }

  /// Takes part in the sums over all replicas of one step, with zeros: called by a replica without rows.
  ///
  /// frozen   see Pass; zeros: memory, kept for the next call
  static void take_part(Together const& together, Span<char const> frozen, std::vector<double>& zeros) {
    auto const join = [&](std::size_t n) {
      zeros.assign(n, 0.0);
      together(zeros);
    };
    for (std::size_t c = 0; c < N.calls; ++c)  // forward: two sums and the count
      if (auto const& call = g.calls[c]; call.ops->joined > 0 && !keeps_averages(c, frozen))
        join(2 * graph::at(call.ops->joined) + 1);
    for (std::size_t c = N.calls; c-- > 0;)
      if (auto const& call = g.calls[c]; call.ops->joined > 0 && Low::wants_dx(call) && !keeps_averages(c, frozen))
        join(2 * graph::at(call.ops->joined));
  }

  /// Waits until all enqueued work is done, so that the host may read its results.
  void settle() {
    if constexpr (QueuesWork<D>) runtime_.synchronize();
  }

  /// Output o: (rows, width(o)).
  float const* output(std::size_t o) const { return reinterpret_cast<float const*>(values_[graph::at(g.outputs[o])]); }
  /// Gradient of the loss by output o: (rows, width(o)), perhaps where that is. To be written before each backward.
  float* d_output(std::size_t o) const { return registers_[graph::at(s_.d_output[o])]; }
  /// Gradient of the loss by input i, which is Differentiable: (rows, field), after backward. Null if no output depends
  /// on it.
  float const* d_input(std::size_t i) const {
    auto const r = s_.d_value[graph::at(g.inputs[i])];
    return r < 0 ? nullptr : registers_[graph::at(r)];
  }
  /// Elements of one row of output o; of one position, if it is ragged.
  static constexpr std::size_t width(std::size_t o) { return g.values[graph::at(g.outputs[o])].size; }
  /// The input whose lengths output o has; -1 if its rows have one shape.
  static constexpr int ragged_of(std::size_t o) { return g.values[graph::at(g.outputs[o])].ragged; }
  /// Elements of output o in the last batch.
  std::size_t size(std::size_t o) const { return elements(g.outputs[o]); }

  /// Elements and bytes of one row of input i, and whether its gradient is asked for.
  static constexpr std::size_t width_in(std::size_t i) { return g.values[graph::at(g.inputs[i])].size; }
  static constexpr std::size_t bytes_in(std::size_t i) { return g.values[graph::at(g.inputs[i])].bytes; }
  static constexpr bool asks(std::size_t i) { return g.values[graph::at(g.inputs[i])].asked; }

  static constexpr std::size_t num_inputs = N.inputs, num_outputs = N.outputs;

 private:
  /// Where everything lies in the memory, in bytes from its start.
  struct Places {
    std::array<std::size_t, N.values> values{};
    std::array<std::size_t, N.calls> workspaces{};
    std::vector<std::optional<std::size_t>> registers;  // none: it has no memory
    std::size_t scratch = 0, total = 0;
  };
  struct LaidOut {};

  /// Makes the stages, and decides where in memory everything lies.
  GraphExecutor(LaidOut, int rows, Rooms const& rooms, Overwritten const& overwritten, Span<float> variables,
                Span<float> gradients, Span<RowGradients> tables)
      : rows_{rows}, ragged_{rows, rooms}, stages_{for_network(runtime_), rows, ragged_.data()}, s_{schedule()},
        variables_{variables}, gradients_{gradients}, tables_{tables} {
    auto const finds        = finds_of_stages();
    auto const used         = graph::Lifetimes{g, s_, finds, QueuesWork<D>};
    auto pieces             = std::vector<graph::Piece>(N.values + N.calls + s_.registers.size() + 1);
    auto* const of_value    = pieces.data();
    auto* const of_call     = of_value + N.values;
    auto* const of_register = of_call + N.calls;
    auto& of_scratch        = pieces.back();
    for (std::size_t v = 0; v < N.values; ++v) {
      auto& piece = of_value[graph::at(s_.buffer[v])];  // of all values of a buffer
      bytes_[v]   = bytes_of(v);
      if (is_own(g.values[v])) piece.bytes = std::max(piece.bytes, bytes_[v]);
      of_value[v].used = used.of_value(v);
    }
    for (std::size_t c = 0; c < N.calls; ++c)
      of_call[c] = {g.calls[c].ops->workspace(stages_[c]), used.of_workspace(c)};
    for (std::size_t r = 0; r < s_.registers.size(); ++r) {
      of_register[r].used = used.of_register(r);
      if (used.home(r) < 0) continue;
      auto& bytes = of_register[used.home(r)].bytes;
      bytes       = std::max(bytes, bytes_[graph::at(s_.registers[r].value)]);
    }
    for (auto const& call : g.calls) of_scratch.bytes = std::max(of_scratch.bytes, scratch_of(call) * sizeof(float));
    of_scratch.used = used.of_backward([](graph::CallRecord const& call) { return needs_scratch(call); });

    auto over = std::vector<std::size_t>(s_.registers.size());  // the piece in which each register lies
    std::iota(over.begin(), over.end(), N.values + N.calls);
    for (std::size_t o = 0; o < N.outputs; ++o) {
      auto const home = used.home(graph::at(s_.d_output[o]));
      if (!overwritten[o] || !is_read_by_loss_alone(o) || home < 0 || of_register[home].used[0].first == 0) continue;
      auto& piece = of_value[s_.buffer[graph::at(g.outputs[o])]];
      piece.bytes = std::max(piece.bytes, std::exchange(of_register[home].bytes, 0));
      piece.used.push_back(of_register[home].used[0]);
      over[graph::at(home)] = static_cast<std::size_t>(&piece - of_value);
    }

    places_.total   = graph::overlay(pieces);
    places_.scratch = of_scratch.offset;
    places_.registers.resize(s_.registers.size());
    for (std::size_t v = 0; v < N.values; ++v) places_.values[v] = of_value[s_.buffer[v]].offset;
    for (std::size_t c = 0; c < N.calls; ++c) places_.workspaces[c] = of_call[c].offset;
    for (std::size_t r = 0; r < s_.registers.size(); ++r)
      if (auto const home = used.home(r); home >= 0) places_.registers[r] = pieces[over[graph::at(home)]].offset;
  }

  /// The runtime of the kernels, told the types in which the network computes.
  static typename K::runtime& for_network(typename K::runtime& runtime) {
    runtime.rounds_to = graph::products_of<Net>();
    if constexpr (graph::keeps_halves<D, Net>) runtime.activations = Net::activations;
    return runtime;
  }

  /// The schedule for the layouts that the kernels have chosen.
  graph::Schedule schedule() const {
    auto copies = std::vector<char>(N.calls);
    for (std::size_t c = 0; c < N.calls; ++c)
      copies[c] = g.calls[c].ops->passes_all != nullptr && !g.calls[c].ops->passes_all(stages_[c]);
    return graph::Scheduler{g, Low::trains, copies, finds_of_stages()}.schedule();
  }
  std::vector<graph::Finds> finds_of_stages() const {
    auto finds = std::vector<graph::Finds>(N.calls);
    for (std::size_t c = 0; c < N.calls; ++c) finds[c] = g.calls[c].ops->finds(stages_[c]);
    return finds;
  }

  /// True if the moving averages of a call are frozen.
  static constexpr bool keeps_averages(std::size_t c, Span<char const> frozen) {
    constexpr bool some = std::ranges::any_of(plan.variables, [](auto const& v) { return v.spec.momentum != 0; });
    if constexpr (!some) return false;
    else
      return !frozen.empty() && graph::keeps_averages(Span<int const>{g.uses}.subspan(graph::at(g.calls[c].first_use),
                                                                                      graph::at(g.calls[c].uses)),
                                                      frozen, [](int v) { return plan.variables[graph::at(v)].spec; });
  }

  /// True if nothing but a loss reads output o.
  static constexpr bool is_read_by_loss_alone(std::size_t o) {
    auto const v        = g.outputs[o];
    auto const is_other = [v](int value) { return value != v; };
    return !g.calls[graph::at(g.values[graph::at(v)].call)].ops->keeps_y && std::ranges::all_of(g.ins, is_other) &&
           std::ranges::count(g.outputs, v) == 1;
  }
  std::size_t per_batch(std::size_t of_a_row) const { return static_cast<std::size_t>(rows_) * of_a_row; }

  /// The layout of a value; null: rows of plain numbers.
  typename K::layout const* layout_of(std::size_t value) const {
    auto const call = g.values[value].call;
    if (call < 0 || g.calls[graph::at(call)].ops->layout == nullptr) return nullptr;
    return static_cast<typename K::layout const*>(g.calls[graph::at(call)].ops->layout(stages_[graph::at(call)]));
  }
  std::size_t bytes_of(std::size_t value) const {
    auto const* const layout = layout_of(value);
    return layout != nullptr ? K::bytes(*layout) : room(g.values[value]) * g.values[value].bytes;
  }

  void zero(std::size_t r) {
    auto const bytes = bytes_[graph::at(s_.registers[r].value)];
    if constexpr (!QueuesWork<D>) std::memset(registers_[r], 0, bytes);
    else K::zero(bytes / sizeof(float), registers_[r]);
  }

  /// c = a + b, gradients by one value.
  void add(graph::Instruction const& step) {
    auto* const a    = registers_[graph::at(step.a)];
    auto* const b    = registers_[graph::at(step.b)];
    auto* const c    = registers_[graph::at(step.c)];
    auto const value = graph::at(s_.registers[graph::at(step.c)].value);
    if constexpr (!QueuesWork<D>) {
      K::sum(g.values[value].ragged < 0 ? bytes_[value] / sizeof(float) : elements(static_cast<int>(value)), a, b, c);
    } else {
      auto const* const of = layout_of(value);
      auto const layout    = of != nullptr ? *of : K::matrix(rows_, static_cast<int>(g.values[value].size));
      if (c != a && c != b) K::copy(layout, a, c);
      K::add(layout, c == b ? a : b, c);
    }
  }

  /// True for a value that the executor has memory for: all but inputs of one shape, which are read in place.
  static constexpr bool is_own(graph::ValueRecord const& value) { return value.call >= 0 || value.ragged >= 0; }
  /// Rows of a value that there is room for; of a ragged one, positions.
  std::size_t room(graph::ValueRecord const& value) const {
    return value.ragged < 0 ? static_cast<std::size_t>(rows_) : ragged_[graph::at(value.ragged)].room;
  }
  /// Elements of a value in this batch.
  std::size_t elements(int v) const {
    auto const& value = g.values[graph::at(v)];
    auto const rows   = value.ragged < 0 ? static_cast<std::size_t>(rows_) : ragged_[graph::at(value.ragged)].positions;
    return rows * value.size;
  }

  /// True if a call cannot write the gradients of its variables in place, because it sets them and shares them.
  static constexpr bool needs_scratch(graph::CallRecord const& call) {
    auto shared = false;
    for (int i = 0; i < call.uses; ++i)
      shared = shared || g.variables[graph::at(g.uses[graph::at(call.first_use + i)])].users > 1;
    return shared && !call.ops->adds;
  }
  /// Elements of scratch that a call needs.
  static constexpr std::size_t scratch_of(graph::CallRecord const& call) {
    auto total = std::size_t{0};
    for (int i = 0; i < call.uses && needs_scratch(call); ++i) total += plan::aligned(variable(call, i).size);
    return total;
  }
  static constexpr PlannedVariable const& variable(graph::CallRecord const& call, int i) {
    return plan.variables[graph::at(g.uses[graph::at(call.first_use + i)])];
  }

  void bind(std::size_t c, std::byte* workspace) {
    auto const& call = g.calls[c];
    auto in = std::vector<graph::Port>{}, out = in, variables = in;
    for (int i = 0; i < call.ins; ++i) {
      auto const k  = graph::at(call.first_in + i);
      auto const v  = graph::at(g.ins[k]);
      auto* const d = s_.d_in[k] < 0 ? nullptr : registers_[graph::at(s_.d_in[k])];
      in.push_back({.data = values_[v], .gradient = d, .field = g.values[v].field});
    }
    for (int i = 0; i < call.outs; ++i) {
      auto const v = graph::at(call.first_out + i);
      out.push_back({values_[v], s_.d_value[v] < 0 ? nullptr : registers_[graph::at(s_.d_value[v])]});
    }
    auto* own = scratch_;
    for (int i = 0; i < call.uses; ++i) {
      auto const& v    = variable(call, i);
      auto* const data = value_of(v);
      if (v.spec.by_rows) {
        variables.push_back({.data = data, .rows = &rows_of(v)});
        continue;
      }
      auto* d = gradient_of(v);
      if (needs_scratch(call)) d = own, own += plan::aligned(v.size);
      variables.push_back({data, d});
    }
    if constexpr (requires { runtime_.relus; }) {  // see onednn::Relus
      auto const asked = runtime_.relus.asked();
      call.ops->bind(stages_[c], {in, out, variables, workspace});
      for (auto const& y : out) runtime_.relus.withdraw(static_cast<float const*>(y.data), asked);
    } else {
      call.ops->bind(stages_[c], {in, out, variables, workspace});
    }
  }

  /// The addresses of a variable and its gradient.
  float* value_of(PlannedVariable const& v) const {
    return units_ != nullptr ? units_->value(static_cast<std::size_t>(&v - plan.variables.data()))
                             : variables_.data() + v.offset;
  }
  float* gradient_of(PlannedVariable const& v) const {
    return units_ != nullptr ? units_->gradient(static_cast<std::size_t>(&v - plan.variables.data()))
                             : gradients_.data() + v.offset;
  }

  /// The gradient of a table.
  RowGradients& rows_of(PlannedVariable const& v) const {
    for (auto& table : tables_)
      if (plan.variables.data() + table.variable() == &v) return table;
    throw BadArgument{"the executor of a network with the table " + std::string{std::string_view{v.name}} + " got " +
                          std::to_string(tables_.size()) + " gradients of tables, and none is of that one.",
                      "a RowGradients for each variable that is by_rows."};
  }

  /// Runs the steps of the schedule that are needed: calls begins(call) before a call computes, and ready(call) when all
  /// gradients of the variables that it uses first are final.
  template <graph::For what, class Begins, class Ready>
  void backward(Pass const& pass, Begins&& begins, Ready&& ready) {
    for (auto const& step : s_.steps) {
      if (!Needs::template all<what> && !Needs::step(step, s_, what)) continue;
      auto const call = graph::at(step.call);
      switch (step.what) {
        case graph::Do::again:
          begins(call);
          g.calls[call].ops->forward(stages_[call], pass);  // of no layer with moving averages
          break;
        case graph::Do::backward:
          begins(call);
          backward_of<what>(call, pass);
          break;
        case graph::Do::add: add(step); break;
        case graph::Do::zero: zero(graph::at(step.c)); break;
        case graph::Do::variables: break;  // no call leaves them out
        case graph::Do::ready: ready(call); break;
      }
    }
  }

  template <graph::For what> void backward_of(std::size_t c, Pass const& pass) {
    auto const& call = g.calls[c];
    if constexpr (Needs::template all<what>) {
      graph::in_pass(pass, keeps_averages(c, pass.frozen),
                     [&](Pass const& of_call) { call.ops->backward(stages_[c], of_call); });
    } else {
      auto part         = pass;
      part.by_variables = what == graph::For::step;
      part.by_input     = Needs::dx(call, what);
      part.training     = pass.training && !keeps_averages(c, pass.frozen);
      call.ops->backward(stages_[c], part);
    }
    if (what == graph::For::inputs || !needs_scratch(call)) return;
    auto const* own = scratch_;
    for (int i = 0; i < call.uses; ++i) {
      auto const& v = variable(call, i);
      auto* const d = gradient_of(v);
      if constexpr (QueuesWork<D>) K::add(K::matrix(1, static_cast<int>(v.size)), own, d);
      else K::sum(v.size, d, own, d);
      own += plan::aligned(v.size);
    }
  }

  int rows_;
  graph::RaggedInputs<N.inputs, graph::has_ragged(g)> ragged_;
  typename K::runtime runtime_;
  graph::Stages<Net, D> stages_;
  graph::Schedule s_;
  Span<float> variables_, gradients_;
  Span<RowGradients> tables_;
  UnitMemory* units_ = nullptr;
  Places places_;
  typename D::block memory_;
  float* scratch_ = nullptr;
  std::array<std::size_t, N.values> bytes_{};  // of each value
  std::array<std::byte*, N.values> values_{};
  std::vector<float*> registers_;
};

}  // namespace chorale::nn
