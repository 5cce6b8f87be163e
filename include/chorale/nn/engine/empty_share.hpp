// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/engine/schedule.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/trace.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace chorale::nn::graph {

/// What a replica without rows does in a step of a network whose layers are split over an axis that deals out rows: it
/// owns parts of their variables, so it answers the other ranks. No other layer of the network computes anything.
///
/// order   the calls of such layers, and sums over all replicas, come in the order in which other ranks make them
template <class Net, class D> class EmptyShare {
  using Low                      = Lowered<Net, D>;
  static constexpr auto const& g = Low::calls;
  static constexpr auto N        = Low::counts;

 public:
  /// variables   laid out by the plan; and their gradients
  /// tables      gradients of the variables whose gradients are rows
  template <class P>
  EmptyShare(P const& plan, Span<float> variables, Span<float> gradients, Span<RowGradients> tables) {
    auto finds = std::vector<Finds>(N.calls, Finds::nothing);
    auto total = std::size_t{0};
    for (std::size_t c = 0; c < N.calls; ++c) {
      begins_[c] = total;
      if (is_split(c)) total += (g.calls[c].ops->size + sizeof(Line) - 1) / sizeof(Line);
    }
    lines_.resize(total);
    for (std::size_t c = 0; c < N.calls; ++c) {
      if (!is_split(c)) continue;
      auto const& call = g.calls[c];
      call.ops->make(stage(c), {.number = call.number, .ragged = ragged_.data()});
      finds[c] = call.ops->finds(stage(c));
      bind(plan, call, stage(c), variables, gradients, tables);
    }
    steps_ = Scheduler{g, Low::trains, {}, finds}.schedule().steps;
  }
  EmptyShare(EmptyShare const&)            = delete;
  EmptyShare& operator=(EmptyShare const&) = delete;
  ~EmptyShare() {
    for (std::size_t c = 0; c < N.calls; ++c)
      if (is_split(c)) g.calls[c].ops->destroy(stage(c));
  }

  void forward(Pass const& pass) {
    for (std::size_t c = 0; c < N.calls; ++c) forward(c, pass);
  }
  void backward(Pass const& pass) {
    for (auto const& step : steps_) {
      if (step.what != Do::again && step.what != Do::backward) continue;
      auto const c     = at(step.call);
      auto const& call = g.calls[c];
      if (step.what == Do::again) forward(c, pass);
      else if (joins(c, pass) && Low::wants_dx(call)) join(pass, 2 * at(call.ops->joined));
      else if (takes_part(c, pass)) call.ops->backward(stage(c), pass);
    }
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };

  static constexpr bool is_split(std::size_t c) { return g.calls[c].ops->axis_size > 1; }
  void* stage(std::size_t c) { return &lines_[begins_[c]]; }

  /// True if other ranks, which have rows, make the call together with this one.
  static bool takes_part(std::size_t c, Pass const& pass) {
    if (!is_split(c)) return false;
    auto const& ops = *g.calls[c].ops;
    return group_along(pass.axes, ops.axis, ops.axis_size).deals_rows;
  }
  /// True if the call adds up over all replicas, as its moving averages are not frozen.
  static bool joins(std::size_t c, Pass const& pass) {
    auto const& call = g.calls[c];
    return call.ops->joined > 0 && !keeps_averages(Span<int const>{g.uses}.subspan(at(call.first_use), at(call.uses)),
                                                   pass.frozen, [](int v) { return g.variables[at(v)].spec; });
  }
  void forward(std::size_t c, Pass const& pass) {
    auto const& call = g.calls[c];
    if (joins(c, pass)) join(pass, 2 * at(call.ops->joined) + 1);  // two sums and the count
    else if (takes_part(c, pass)) call.ops->forward(stage(c), pass);
  }
  void join(Pass const& pass, std::size_t n) {
    zeros_.assign(n, 0.0);
    pass.together(zeros_);
  }

  template <class P>
  static void bind(P const& plan, CallRecord const& call, void* stage, Span<float> variables, Span<float> gradients,
                   Span<RowGradients> tables) {
    auto in = std::vector<Port>(at(call.ins)), out = std::vector<Port>(at(call.outs)), own = std::vector<Port>{};
    for (int i = 0; i < call.ins; ++i) in[at(i)].field = g.values[at(g.ins[at(call.first_in + i)])].field;
    for (int i = 0; i < call.uses; ++i) {
      auto const v        = at(g.uses[at(call.first_use + i)]);
      auto const& planned = plan.variables[v];
      own.push_back({.data = variables.data() + planned.offset});
      if (!planned.spec.by_rows) own.back().gradient = gradients.data() + planned.offset;
      for (auto& table : tables)
        if (planned.spec.by_rows && table.variable() == v) own.back().rows = &table;
    }
    call.ops->bind(stage, {in, out, own, nullptr});
  }

  std::array<RaggedRows, N.inputs> ragged_{};  // without positions
  std::array<std::size_t, N.calls> begins_{};
  std::vector<Line> lines_;
  std::vector<Instruction> steps_;
  std::vector<double> zeros_;
};

}  // namespace chorale::nn::graph
