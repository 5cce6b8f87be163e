// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/text.hpp>
#include <chorale/optim/optimizer.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

namespace chorale::optim {

/// Factor by which the loss is multiplied before its gradients are computed, and the steps since it last changed.
///
/// keeps   a power of two from 1 to `largest`: multiplying and dividing by it rounds nothing
struct LossScale {
  static constexpr float largest = 16'777'216;  // 2^24

  float value        = 1;
  std::int64_t steps = 0;  // since it last changed

  /// Counts a step whose gradients are finite; after `growth_steps` of them the factor doubles.
  void held(std::int64_t growth_steps) {
    if (++steps < growth_steps) return;
    value = std::min(2 * value, largest);
    steps = 0;
  }
  /// Halves the factor after a step whose gradients are not finite. False if it is 1, and so not the cause.
  bool halve() {
    if (value <= 1) return false;
    value /= 2;
    steps = 0;
    return true;
  }
};

/// An optimizer for products in half precision, in which small gradients round to zero: the loss is multiplied by a
/// scale, and the update divides by it. A step whose gradients overflow on any replica is skipped on all, and the scale
/// halves; after `growth_steps` steps without overflow it doubles. At scale 1, FitOptions::on_non_finite decides.
///
///   nn::compile<nn::WithProducts<Net, Products::fp16>>(loss, optim::LossScaled{optim::Adam{.learning_rate = 1e-3F}})
///
/// keeps    the scale is a power of two: unless a number overflows or is denormal, the bits are the same as with O
/// source   Micikevicius et al., ICLR 2018; tf.keras.optimizers.LossScaleOptimizer
template <Optimizer O> struct LossScaled : O {
  /// scale     the first one: a power of two, 1 to LossScale::largest
  /// growth    steps until the scale doubles
  explicit LossScaled(O const& rule, float scale = 32'768, std::int64_t growth = 2'000)
      : O{rule}, initial_scale{scale}, growth_steps{growth} {
    CHORALE_EXPECTS(
        scale >= 1 && scale <= LossScale::largest && (std::bit_cast<std::uint32_t>(scale) & 0x7f'ffffU) == 0,
        "a loss scale is a power of two from 1 to 16777216, got " + number_text(scale));
    CHORALE_EXPECTS(growth >= 1, "a loss scale grows after 1 step or more, got " + std::to_string(growth));
  }

  float initial_scale;
  std::int64_t growth_steps;

  /// Calls visit(name, value) for each option, beginning with O's. Ranks compare these.
  void options(auto&& visit) const {
    if constexpr (NamesOptions<O>) O::options(visit);
    visit("initial_scale", initial_scale);
    visit("growth_steps", growth_steps);
  }
};

template <class O> inline constexpr bool scales_loss                = false;
template <class O> inline constexpr bool scales_loss<LossScaled<O>> = true;

}  // namespace chorale::optim
