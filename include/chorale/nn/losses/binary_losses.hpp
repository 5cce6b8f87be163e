// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/nn/losses/row_loss.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

/// Losses of outputs that each decide between two classes, beside BinaryCrossEntropy.
namespace chorale::loss {

/// The mean over outputs of max(0, 1 - target · output). On CPUs.
///
/// outputs    (B, width); where target · output is 1, the gradient is 0
/// targets    (B, width), -1 or 1; 0 counts as -1, in each row. Keras replaces 0 if a batch has nothing but 0 and 1
/// source     tf.keras.losses.Hinge
struct Hinge {
  using target = float;

  float row(Span<float const> outputs, Span<float const> wanted, Span<float> d_outputs) const {
    auto const scale = 1 / static_cast<float>(outputs.size());
    auto const sum   = sum_over(outputs.size(), [&](std::size_t i) {
      auto const t = wanted[i] == 0 ? -1 : wanted[i], missing = 1 - t * outputs[i];
      d_outputs[i] = missing > 0 ? -scale * t : 0;
      return std::max(missing, 0.0F);
    });
    return scale * static_cast<float>(sum);
  }
};

/// The mean over outputs of max(0, 1 - target · output)^2. On CPUs. See Hinge for its targets.
///
/// source     tf.keras.losses.SquaredHinge
struct SquaredHinge {
  using target = float;

  float row(Span<float const> outputs, Span<float const> wanted, Span<float> d_outputs) const {
    auto const scale = 1 / static_cast<float>(outputs.size());
    auto const sum   = sum_over(outputs.size(), [&](std::size_t i) {
      auto const t = wanted[i] == 0 ? -1 : wanted[i], missing = std::max(1 - t * outputs[i], 0.0F);
      d_outputs[i] = -2 * scale * t * missing;
      return missing * missing;
    });
    return scale * static_cast<float>(sum);
  }
};

/// Binary cross entropy in which outputs count less, the better they are: times (1 - q)^gamma, where q is the probability
/// of what is right. For few positives among many easy negatives. On CPUs.
///
/// logits, targets    (B, width), each target in [0, 1]
/// alpha              with apply_class_balancing, positives count this much, and negatives 1 - alpha
/// throws             BadArgument when an option is out of range
/// source             Lin et al., ICCV 2017; tf.keras.losses.BinaryFocalCrossentropy(from_logits=True), which rounds
///                    probabilities to 1e-7 before it takes their logarithm
struct BinaryFocalCrossEntropy {
  using target                              = float;
  static constexpr bool takes_binary_logits = true;

  bool apply_class_balancing = false;
  float alpha                = 0.25F;
  float gamma                = 2;
  float label_smoothing      = 0;  // targets become (1 - it) t + it / 2

  /// Calls visit(name, value) for each option. Ranks compare these.
  void options(auto&& visit) const {
    visit("apply_class_balancing", apply_class_balancing);
    visit("alpha", alpha);
    visit("gamma", gamma);
    visit("label_smoothing", label_smoothing);
  }
  void check_options() const {
    detail::check_smoothing(label_smoothing);
    CHORALE_EXPECTS(gamma >= 0 && std::isfinite(gamma),
                    "gamma of loss::BinaryFocalCrossEntropy is 0 or more, got " + number_text(gamma));
    CHORALE_EXPECTS(alpha >= 0 && alpha <= 1,
                    "alpha of loss::BinaryFocalCrossEntropy is from 0 to 1, got " + number_text(alpha));
  }

  float row(Span<float const> logits, Span<float const> wanted, Span<float> d_logits) const {
    check_options();
    auto const scale = 1 / static_cast<float>(logits.size());
    auto const sum   = sum_over(logits.size(), [&](std::size_t i) {
      auto const z = logits[i], t = (1 - label_smoothing) * wanted[i] + label_smoothing / 2;
      auto const tail = std::exp(-std::abs(z));  // at most 1: no overflow
      auto const p = (z >= 0 ? 1 : tail) / (1 + tail), rest = (z >= 0 ? tail : 1) / (1 + tail);
      auto const entropy = std::max(z, 0.0F) - z * t + std::log1p(tail);
      auto const wrong   = t * rest + (1 - t) * p;  // 1 - q
      auto const factor  = std::pow(wrong, gamma);
      auto const weight  = apply_class_balancing ? t * alpha + (1 - t) * (1 - alpha) : 1.0F;
      auto const slope   = wrong > 0 ? gamma * factor / wrong * (1 - 2 * t) * p * rest : 0.0F;  // of factor by z
      d_logits[i]        = scale * weight * (slope * entropy + factor * (p - t));
      return weight * factor * entropy;
    });
    return scale * static_cast<float>(sum);
  }
};

}  // namespace chorale::loss
