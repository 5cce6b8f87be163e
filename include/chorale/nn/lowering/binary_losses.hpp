// SPDX-License-Identifier: Apache-2.0
//
// Losses of outputs that each decide between two classes, in operations.
#pragma once

#include <chorale/nn/losses/binary_losses.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/lowering/loss.hpp>
#include <chorale/nn/lowering/program.hpp>

namespace chorale::nn::stablehlo {

namespace detail {

/// Moves targets in [0, 1] towards 1/2, by the share `smoothing`.
inline Value smoothed_to_half(Value targets, float smoothing) {
  loss::detail::check_smoothing(smoothing);
  if (smoothing == 0) return targets;
  return static_cast<double>(1 - smoothing) * targets + static_cast<double>(smoothing / 2);
}

/// exp(-|z|), at most 1, and the logistic function of z: what losses of two classes are made of.
struct OfTwoClasses {
  Value tail, p, rest;  // rest: 1 - p, to all digits

  explicit OfTwoClasses(Value z) : tail{exp(-abs(z))} {
    auto const positive = compare(z, "GE", 0), all = 1.0 + tail;
    p    = select(positive, like(z, 1), tail) / all;
    rest = select(positive, tail, like(z, 1)) / all;
  }
  /// -(t log p + (1 - t) log(1 - p)) for each output.
  Value entropy(Value z, Value t) const { return maximum(z, 0) - z * t + log1p(tail); }
};

/// Targets of -1 or 1, where 0 counts as -1.
inline Value signs(Value targets) { return select(compare(targets, "EQ", 0), -1.0, targets); }

}  // namespace detail

// The mean entropy of two classes.
template <> struct LossLowering<loss::BinaryCrossEntropy> {
  static Value rows(loss::BinaryCrossEntropy const& loss, Value z, Value targets) {
    auto const t   = detail::smoothed_to_half(targets, loss.label_smoothing);
    auto const two = detail::OfTwoClasses{z};
    return detail::mean_of_row(detail::with_slope(two.entropy(z, t), z, two.p - t));
  }
};
// The same of probabilities; those below 1e-7 and above 1 - 1e-7 count as these, also in the gradient.
template <> struct LossLowering<loss::BinaryCrossEntropyOfProbabilities> {
  static Value rows(loss::BinaryCrossEntropyOfProbabilities const& loss, Value y, Value targets) {
    auto const t = detail::smoothed_to_half(targets, loss.label_smoothing);
    auto const p = minimum(maximum(y, 1e-7), double{1 - 1e-7F});
    auto const f = -(t * log(p)) - (1.0 - t) * log1p(-p);
    return detail::mean_of_row(detail::with_slope(f, y, (1.0 - t) / (1.0 - p) - t / p));
  }
};
// That entropy times (1 - q)^gamma.
template <> struct LossLowering<loss::BinaryFocalCrossEntropy> {
  static Value rows(loss::BinaryFocalCrossEntropy const& loss, Value z, Value targets) {
    loss.check_options();
    auto const gamma = static_cast<double>(loss.gamma), alpha = static_cast<double>(loss.alpha);
    auto const t       = detail::smoothed_to_half(targets, loss.label_smoothing);
    auto const two     = detail::OfTwoClasses{z};
    auto const entropy = two.entropy(z, t);
    auto const wrong   = t * two.rest + (1.0 - t) * two.p;
    auto const factor  = power(wrong, detail::like(wrong, gamma));
    auto const some    = compare(wrong, "GT", 0);
    auto const by_base = select(some, gamma * factor / select(some, wrong, 1.0), 0.0);
    auto const slope   = by_base * (1.0 - 2.0 * t) * two.p * two.rest;  // of factor by z
    auto f             = factor * entropy;
    auto by_z          = slope * entropy + factor * (two.p - t);
    if (loss.apply_class_balancing) {
      auto const weight = t * alpha + (1.0 - t) * (1.0F - loss.alpha);
      f = weight * f, by_z = weight * by_z;
    }
    return detail::mean_of_row(detail::with_slope(f, z, by_z));
  }
};
// The mean of max(0, 1 - target · y).
template <> struct LossLowering<loss::Hinge> {
  static Value rows(loss::Hinge const&, Value y, Value targets) {
    return detail::mean_of_row(maximum(1.0 - detail::signs(targets) * y, 0));
  }
};
// The mean of its squares.
template <> struct LossLowering<loss::SquaredHinge> {
  static Value rows(loss::SquaredHinge const&, Value y, Value targets) {
    auto const missing = maximum(1.0 - detail::signs(targets) * y, 0);
    return detail::mean_of_row(missing * missing);
  }
};

}  // namespace chorale::nn::stablehlo
