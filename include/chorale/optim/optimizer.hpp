// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/optim/schedule.hpp>
#include <chorale/tensor/kernels.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

namespace chorale::optim {

/// Arguments of an update: flat arrays of equal length and layout, padding included. Padding is zero and stays zero.
///
/// slots    (O::slots, n): the optimizer's memory of each variable, one row after the other; zero at the start
/// stride   from one row of slots to the next, if they belong to more values than these; 0: n
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

/// An update rule: a value with hyperparameters. Its state, one or more slots for each variable, is stored separately.
///
///   O::options(visit)   optional: calls visit(name, value) for each hyperparameter. Ranks compare these when they
///                       connect. Without it they compare its type, its first learning rate and its global_clipnorm
///   slots_in_use()      optional: how many of the O::slots update() reads and writes with these hyperparameters;
///                       without it, all. An update of a few rows of a table copies no others
///
/// order    the same input bits give the same output bits, which keeps mirrored variables equal
template <class O>
concept Optimizer = requires(O const& optimizer, Update const& update) {
  { O::slots }                        -> std::convertible_to<int>;         // floats kept for each trainable number
  { optimizer.rate(update.now) }      -> std::same_as<float>;              // the learning rate of this step
  { optimizer.global_clipnorm }       -> std::convertible_to<float>;       // 0: gradients are not clipped
};

/// True if O changes variables and slots only by update rules of Kernels<D>. On a device that QueuesWork, these may be
/// enqueued before the host has read the gradients: they change nothing if the device has found a NaN.
template <class O>
concept QueuesUpdates = requires { requires O::queues; };

/// Appends the description of an optimizer, in lines that ranks compare: its type and its options; without options its
/// first learning rate and its global_clipnorm.
template <Optimizer O>
void describe_optimizer(O const& optimizer, std::vector<std::string>& lines) {
  describe("optimizer", optimizer, lines);
  if constexpr (!NamesOptions<O>) {
    lines.push_back("optimizer learning_rate " + word_of(optimizer.rate(Moment{})));
    lines.push_back("optimizer global_clipnorm " + word_of(static_cast<float>(optimizer.global_clipnorm)));
  }
}

}  // namespace chorale::optim
