// SPDX-License-Identifier: Apache-2.0
//
// How a traced network is computed on a device that QueuesWork: what its learner needs beside the executor.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/engine/queued_step.hpp>
#include <chorale/nn/engine/sequential_executor.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/trace/compared.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

namespace chorale::nn::graph {

/// A GraphExecutor with the memory of a step on the device.
template <class Net, class D> class QueuedExecutor : public GraphExecutor<Net, D> {
  using Base = GraphExecutor<Net, D>;

 public:
  QueuedExecutor(int rows, Span<float> variables, Span<float> gradients, Span<RowGradients> tables, D const& device,
                 typename Base::Rooms const& rooms, typename Base::Overwritten const& overwritten,
                 UnitMemory* units = nullptr)
      : Base{rows, variables, gradients, tables, device, rooms, overwritten, units},
        step_{static_cast<std::size_t>(rows) * widest()} {}

  auto& step() { return step_.step; }

 private:
  /// An upper bound of the positions of a row over which a loss or a metric is added up.
  static constexpr std::size_t widest() {
    auto most = std::size_t{1};
    for (std::size_t o = 0; o < Base::num_outputs; ++o) most = std::max(most, Base::width(o));
    return most;
  }

  nn::detail::StepOf<D> step_;
};

template <class Net, class D>
using ExecutorOf = std::conditional_t<QueuesWork<D>, QueuedExecutor<Net, D>, GraphExecutor<Net, D>>;

/// True if the gradient of a variable of the network is rows.
template <class Net> constexpr bool has_tables() {
  auto found = false;
  for (auto const& v : nn::plan_of<Net>.variables) found = found || v.spec.by_rows;
  return found;
}

/// Sums of losses and metrics of a step, which kernels of the device compute one after another.
///
/// order     loss() and metric() of each term, end(), a wait; then next() for each term in the same order
template <class D> class QueuedTerms {
 public:
  template <class Term>
  static constexpr bool computes = nn::detail::queues_metric<D, decltype(std::remove_cvref_t<Term>::what),
                                                             typename std::remove_cvref_t<Term>::field::element_type>;

  explicit QueuedTerms(typename Kernels<D>::Step& step) : step_{&step} {}

  /// Queues a loss of an output O, and its gradient dy of n numbers.
  ///
  /// throws  BadArgument when the loss refuses a target
  template <class O, class Term, class Batch>
  void loss(Term const& term, Batch const& batch, float const* y, float* dy, std::size_t n) {
    using F = typename Term::field;
    using C = Compared<decltype(Term::what), O, F>;
    static_assert(std::is_void_v<typename Term::row_weight>,
                  "chorale: losses weighted by a field run on CPUs only. Use a strategy over Cpu");
    auto const rows         = batch.rows * C::positions;
    auto const* const there = batch[F{}].data();
    if constexpr (requires { term.what.check(rows, C::width, there); }) term.what.check(rows, C::width, there);
    factors_[count_] = term.weight / static_cast<float>(C::positions);
    if constexpr (requires { term.what.template queue<D>(rows, C::width, y, there, dy, SumOfRows{}); }) {
      term.what.template queue<D>(rows, C::width, y, step_->fetch(there, batch.rows * F::size, count_), dy, sum());
      if (factors_[count_] != 1) Kernels<D>::multiply(n, dy, factors_[count_]);
    } else {
      loss::detail::refuse_device<D, decltype(Term::what)>();
    }
    ++count_;
  }
  /// Queues a metric of an output O, if it has a kernel.
  template <class O, class Term, class Batch> void metric(Term const& term, Batch const& batch, float const* y) {
    using F = typename Term::field;
    using C = Compared<decltype(Term::what), O, F>;
    if constexpr (computes<Term>)
      term.what.template queue<D>(batch.rows * C::positions, C::width, y,
                                  step_->fetch(batch[F{}].data(), batch.rows * F::size, count_), sum());
    factors_[count_++] = 1 / static_cast<float>(C::positions);
  }
  void end() { step_->end(); }

  float next() {
    auto const sum = step_->sums()[next_] * factors_[next_];
    ++next_;
    return sum;
  }

 private:
  SumOfRows sum() { return step_->sum_to(&step_->own_sums()[count_]); }

  typename Kernels<D>::Step* step_;
  std::size_t count_ = 0, next_ = 0;
  std::array<float, plan::header> factors_{};
};

}  // namespace chorale::nn::graph
