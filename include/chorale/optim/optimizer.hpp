// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/optim/schedule.hpp>
#include <chorale/tensor/kernels.hpp>

#include <concepts>
#include <cstddef>

namespace chorale::optim {

/// What an update works on: flat arrays of equal length and layout, padding included. Padding is zero and stays zero.
///
/// slots    (O::slots, n): the optimizer's memory of each variable, one row after the other; zero at the start
/// stride   from one row of slots to the next, where they belong to more values than these; 0: n
/// scale    the gradient is gradients[i] · scale: 1 / rows, and the clipping factor
struct Update {
  Span<float> values;
  Span<float const> gradients;
  Span<float> slots;
  float scale;
  Moment now;
  std::size_t stride = 0;

  float* slot(std::size_t i) const { return slots.data() + i * (stride == 0 ? values.size() : stride); }
};

/// An update rule: hyperparameters are a value, state is one or more slots for each variable, beside it.
///
///   O::options(visit)   optional: calls visit(name, value) for each hyperparameter: what ranks compare when they
///                       connect. Without it they compare its type, its first learning rate and its global_clipnorm
///
/// order    the same bits in give the same bits out: this is what keeps mirrored variables equal
template <class O>
concept Optimizer = requires(O const& optimizer, Update const& update) {
  { O::slots }                        -> std::convertible_to<int>;         // floats kept for each trainable number
  { optimizer.rate(update.now) }      -> std::same_as<float>;              // the learning rate of this step
  { optimizer.global_clipnorm }       -> std::convertible_to<float>;       // 0: gradients are not clipped
};

/// Does O change variables and slots by update rules of Kernels<D> alone? Then, where a device QueuesWork, they may be
/// queued behind gradients that nobody has seen: these rules leave all as it is where the device finds a NaN.
template <class O>
concept QueuesUpdates = requires { requires O::queues; };

}  // namespace chorale::optim
