// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/engine/sequential_trace.hpp>
#include <chorale/nn/graph/executor.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/variable.hpp>

#include <cstddef>

namespace chorale::nn {

namespace detail {

/// What an executor keeps for a device that QueuesWork: its Step.
template <class D>
struct StepOf {
  explicit StepOf(std::size_t) {}
};
template <QueuesWork D>
struct StepOf<D> {
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
template <class D, class Net>
class Executor : public GraphExecutor<detail::SequentialTrace<Net>, D> {
  using Base = GraphExecutor<detail::SequentialTrace<Net>, D>;

 public:
  /// rows    of every batch that this executor takes, at least 1
  Executor(D const& device, int rows, Variables const& variables, Gradients const& gradients)
      : Base{rows, variables.values, gradients.values, {}, device}, step_{static_cast<std::size_t>(rows)} {}

  /// Sets the input of the next pass. If the device QueuesWork, copies it there, always to the same address.
  ///
  /// x    (rows, Input); read again by backward, so it must live until then
  void read(float const* x) { Base::read(0, x); }

  /// Outputs of the network: (rows, Output).
  float const* output() const { return Base::output(0); }
  /// Gradient of the loss by the outputs: (rows, Output). To be written before backward.
  float* d_output() const { return Base::d_output(0); }

  auto& step() requires QueuesWork<D> { return step_.step; }

 private:
  [[no_unique_address]] detail::StepOf<D> step_;
};

}  // namespace chorale::nn
