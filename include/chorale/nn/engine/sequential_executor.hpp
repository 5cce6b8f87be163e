// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/engine/executor.hpp>
#include <chorale/nn/engine/sequential_trace.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cstddef>

namespace chorale::nn {

namespace detail {

/// What an executor keeps for a device that QueuesWork: its Step.
template <class D> struct StepOf {
  explicit StepOf(std::size_t) {}
};
template <QueuesWork D> struct StepOf<D> {
  explicit StepOf(std::size_t rows) : step{rows} {}
  typename Kernels<D>::Step step;
};

}  // namespace detail

/// A Sequential laid out on one device for one number of rows.
///
///   forward     x ─▶ layer 0 ─▶ layer 1 ─▶ ... ─▶ output()
///   backward    d_output() ─▶ ... ─▶ layer 0; after each layer with variables `ready(end)`: the gradients below `end`
///               are final, and a bucket of them may be sent while the layers before still compute
///
/// keeps, cost, order    see GraphExecutor
template <class D, class Net> class Executor : public GraphExecutor<detail::SequentialTrace<Net>, D> {
  using Base = GraphExecutor<detail::SequentialTrace<Net>, D>;

 public:
  /// rows    of every batch that this executor takes, at least 1
  Executor(int rows, Span<float> variables, Span<float> gradients, D const& device)
      : Base{rows, variables, gradients, {}, device}, step_{static_cast<std::size_t>(rows)} {}

  auto& step() requires QueuesWork<D> { return step_.step; }

 private:
  [[no_unique_address]] detail::StepOf<D> step_;
};

}  // namespace chorale::nn
