// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/text.hpp>
#include <chorale/optim/schedule.hpp>
#include <chorale/tensor/kernels.hpp>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
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
///                       connect. Without it they compare its type, its first learning rate and its global_clipnorm.
///                       Those with a name that Keras uses are checked: see check_options()
///   slots_in_use()      optional: how many of the O::slots update() reads and writes with these hyperparameters;
///                       without it, all. An update of a few rows of a table copies no others
///
///   O::by_variable, update_variable<D>(u)     optional: true if the update of a number depends on the whole variable,
///                       as by a norm. update_variable() then takes one variable with its padding
///
/// order    the same input bits give the same output bits, which keeps mirrored variables equal
template <class O>
concept Optimizer = requires(O const& optimizer, Update const& update) {
  { O::slots } -> std::convertible_to<int>;                     // floats kept for each trainable number
  { optimizer.rate(update.now) } -> std::same_as<float>;        // the learning rate of this step
  { optimizer.global_clipnorm } -> std::convertible_to<float>;  // 0: gradients are not clipped
};

/// True if O changes variables and slots only by update rules of Kernels<D>. On a device that QueuesWork, these may be
/// enqueued before the host has read the gradients: they change nothing if the device has found a NaN.
template <class O> concept QueuesUpdates = requires { requires O::queues; };

/// True if O updates whole variables, one at a time, instead of any range of numbers.
template <class O> concept UpdatesByVariable = requires { requires O::by_variable; };

/// Checks the options of an optimizer that have one of Keras' names, when a copy of a model is made.
///
/// throws    BadArgument when epsilon is not above 0, beta_1, beta_2 or rho is not in [0, 1), momentum is not in [0, 1],
///           or weight_decay or initial_accumulator is negative or not finite. A Rate checks itself
template <Optimizer O> void check_options(O const& optimizer) {
  if constexpr (NamesOptions<O>) {
    optimizer.options([](std::string_view name, auto const& value) {
      if constexpr (std::is_same_v<decltype(value), float const&>) {
        auto const expect = [&](bool good, std::string const& range) {
          CHORALE_EXPECTS(good, std::string{name} + " of optim::" + type_name<O>() + " is " + range + ", got " +
                                    number_text(value));
        };
        if (name == "epsilon") expect(value > 0 && std::isfinite(value), "a number above 0");
        if (name == "beta_1" || name == "beta_2" || name == "rho") expect(value >= 0 && value < 1, "from 0 to below 1");
        if (name == "momentum") expect(value >= 0 && value <= 1, "from 0 to 1");
        if (name == "weight_decay" || name == "initial_accumulator")
          expect(value >= 0 && std::isfinite(value), "a number of 0 or more");
      }
    });
  }
}

namespace detail {

/// x, or 0 instead of a subnormal number: those are slow.
inline float normal(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? 0.0F : x; }

}  // namespace detail

/// Appends the description of an optimizer, in lines that ranks compare: its type and its options; without options its
/// first learning rate and its global_clipnorm.
template <Optimizer O> void describe_optimizer(O const& optimizer, std::vector<std::string>& lines) {
  describe("optimizer", optimizer, lines);
  if constexpr (!NamesOptions<O>) {
    lines.push_back("optimizer learning_rate " + word_of(optimizer.rate(Moment{})));
    lines.push_back("optimizer global_clipnorm " + word_of(static_cast<float>(optimizer.global_clipnorm)));
  }
}

}  // namespace chorale::optim
