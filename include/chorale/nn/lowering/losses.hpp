// SPDX-License-Identifier: Apache-2.0
//
// The losses of the library, in operations: the numbers and gradients that they have on CPUs.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/losses/loss.hpp>
#include <chorale/nn/losses/row_loss.hpp>
#include <chorale/nn/losses/row_losses.hpp>
#include <chorale/nn/losses/weighted_loss.hpp>
#include <chorale/nn/lowering/binary_losses.hpp>
#include <chorale/nn/lowering/loss.hpp>
#include <chorale/nn/lowering/program.hpp>
#include <chorale/nn/trace/compared.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::nn::stablehlo {

namespace detail {

/// log Σ exp(y) of each row: (N, C) to (N).
inline Value log_of_sum(Value y) {
  auto const top = stop_gradient(largest_last(y));
  return top + log(sum_last(exp(y - along_first(top, y))));
}
/// Where a row has its label: (N, 1) to (N, C) truths.
inline Value at_label(Value labels, Value y) {
  return compare(y.program->iota(Element::i32, y.dims(), 1), "EQ", along_first(reshape(labels, {y.dim(0)}), y));
}
inline Value one_hot(Value labels, Value y) { return convert(at_label(labels, y), Element::f32); }

/// Targets with the share `smoothing` spread evenly over all classes.
inline Value smoothed(Value targets, float smoothing) {
  loss::detail::check_smoothing(smoothing);
  if (smoothing == 0) return targets;
  return targets - static_cast<double>(smoothing) * (targets - double{1.0F / static_cast<float>(targets.dim(1))});
}
/// -Σ target · log softmax(y), with the gradient softmax(y) - target whatever the targets of a row add up to.
inline Value cross_entropy(Value y, Value targets) {
  auto const log_z = log_of_sum(y), still = stop_gradient(log_z);
  return sum_last(targets * (along_first(still, y) - y)) + (log_z - still);
}
/// -Σ target · log p; a probability below 1e-7 counts as 1e-7, also in the gradient.
inline Value cross_entropy_of_probabilities(Value p, Value targets) {
  auto const at = maximum(p, 1e-7);
  return sum_last(with_slope(-(targets * log(at)), p, -(targets / at)));
}

}  // namespace detail

// log Σ exp(y) - y[label]
template <> struct LossLowering<loss::SparseCrossEntropy> {
  static Value rows(loss::SparseCrossEntropy const& loss, Value y, Value labels) {
    if (loss.label_smoothing != 0)
      return detail::cross_entropy(y, detail::smoothed(detail::one_hot(labels, y), loss.label_smoothing));
    return detail::log_of_sum(y) - sum_last(select(detail::at_label(labels, y), y, 0.0));
  }
};
// Σ target · (log Σ exp(y) - y)
template <> struct LossLowering<loss::CrossEntropy> {
  static Value rows(loss::CrossEntropy const& loss, Value y, Value targets) {
    return detail::cross_entropy(y, detail::smoothed(targets, loss.label_smoothing));
  }
};
// -log p[label]
template <> struct LossLowering<loss::SparseCrossEntropyOfProbabilities> {
  static Value rows(loss::SparseCrossEntropyOfProbabilities const& loss, Value p, Value labels) {
    auto const targets = detail::smoothed(detail::one_hot(labels, p), loss.label_smoothing);
    return detail::cross_entropy_of_probabilities(p, targets);
  }
};
// -Σ target · log p
template <> struct LossLowering<loss::CrossEntropyOfProbabilities> {
  static Value rows(loss::CrossEntropyOfProbabilities const& loss, Value p, Value targets) {
    return detail::cross_entropy_of_probabilities(p, detail::smoothed(targets, loss.label_smoothing));
  }
};

// The mean of (y - target)^2.
template <> struct LossLowering<loss::MeanSquaredError> {
  static Value rows(loss::MeanSquaredError const&, Value y, Value targets) {
    auto const d = y - targets;
    return detail::mean_of_row(d * d);
  }
};
// The mean of |y - target|.
template <> struct LossLowering<loss::MeanAbsoluteError> {
  static Value rows(loss::MeanAbsoluteError const&, Value y, Value targets) {
    return detail::mean_of_row(abs(y - targets));
  }
};
// Squares near the target, then straight lines.
template <> struct LossLowering<loss::Huber> {
  static Value rows(loss::Huber const& loss, Value y, Value targets) {
    loss.check_options();
    auto const d = y - targets, far = abs(d);
    auto const delta = static_cast<double>(loss.delta);
    return detail::mean_of_row(select(compare(far, "LE", delta), d * d / 2.0, delta * (far - delta / 2)));
  }
};
// log cosh(d), in a form that is exact near 0 and does not overflow.
template <> struct LossLowering<loss::LogCosh> {
  static Value rows(loss::LogCosh const&, Value y, Value targets) {
    auto const d = y - targets, far = abs(d);
    return detail::mean_of_row(detail::with_slope(far + log1p(expm1(-2.0 * far) / 2.0), y, tanh(d)));
  }
};
// The mean of y - target · log y.
template <> struct LossLowering<loss::Poisson> {
  static Value rows(loss::Poisson const&, Value y, Value targets) {
    return detail::mean_of_row(y - targets * log(y + 1e-7));
  }
};
// Σ target · log(target / p), of numbers from 1e-7 to 1; larger p have no gradient.
template <> struct LossLowering<loss::KLDivergence> {
  static Value rows(loss::KLDivergence const&, Value y, Value targets) {
    auto const between = [](Value x) { return minimum(maximum(x, 1e-7), 1); };
    auto const p = between(y), t = between(targets);
    return sum_last(detail::with_slope(t * log(t / p), y, select(compare(y, "GT", 1), 0.0, -(t / p))));
  }
};
// Minus the cosine; of vectors without a direction 0, without a gradient.
template <> struct LossLowering<loss::CosineSimilarity> {
  static Value rows(loss::CosineSimilarity const&, Value y, Value targets) {
    auto const of_y = sum_last(y * y), of_targets = sum_last(targets * targets);
    auto const both  = compare(of_y, "GE", 1e-14) & compare(of_targets, "GE", 1e-14);
    auto const norms = sqrt(select(both, of_y, 1.0)) * sqrt(select(both, of_targets, 1.0));
    return select(both, -(sum_last(y * targets) / norms), 0.0);
  }
};
// Σ target · y
template <> struct LossLowering<loss::Given> {
  static Value rows(loss::Given const&, Value y, Value targets) { return sum_last(y * targets); }
};

// Each row counts by its class.
template <class L> requires writes_loss<L> struct LossLowering<loss::Weighted<L>> {
  static Value rows(loss::Weighted<L> const& loss, Value y, Value targets) {
    loss.check(0, static_cast<std::size_t>(y.dim(1)), nullptr);
    auto const weights = gather(column(*y.program, loss.weights()), classes(targets));  // (N, 1)
    return LossLowering<L>::rows(loss.loss(), y, targets) * reshape(weights, {y.dim(0)});
  }

 private:
  /// The class of each row: (N).
  static Value classes(Value targets) {
    auto const n = targets.dim(0), width = targets.dim(1);
    if constexpr (std::is_integral_v<typename L::target>) {
      return reshape(targets, {n});
    } else {
      if (width == 1) return convert(reshape(compare(targets, "GE", 0.5), {n}), Element::i32);
      auto const is_top = compare(targets, "EQ", along_first(largest_last(targets), targets));
      auto const behind = static_cast<double>(width) - targets.program->iota(Element::f32, targets.dims(), 1);
      auto const first  = static_cast<double>(width) - largest_last(select(is_top, behind, 0.0));
      return convert(first, Element::i32);
    }
  }
  static Value column(Program& program, Span<float const> numbers) {
    auto each = std::vector<Value>{};
    for (auto const number : numbers) each.push_back(program.constant(static_cast<double>(number), {1, 1}));
    return concatenate(each, 0);
  }
};

/// The sum of one loss of a network over the real rows of a batch.
///
/// output     (B, ..), which the loss compares; targets: (B, ..), its field
/// weights    (B, 1), if the term has row weights; else no value
/// real       (B), see Call; rows that are not real have no gradient, whatever their outputs are
template <class Net, class Term>
Value term_sum(Term const& term, Value output, Value targets, Value weights, Value real) {
  using L      = std::remove_cvref_t<decltype(term.what)>;
  using F      = typename Term::field;
  using All    = graph::OutputsIn<Net>;
  using O      = typename graph::Nth<graph::index_of<F, typename All::fields>, typename All::values>::type;
  using C      = graph::Compared<L, O, F>;
  using Target = typename L::target;
  static_assert(writes_loss<L> || F::is_ragged,  // which another sentence refuses
                "chorale: this loss is not written in operations of StableHLO, so no PJRT device "
                "computes it. Use losses that docs/46-tpu.md lists, specialise "
                "nn::stablehlo::LossLowering, or use a strategy over Cpu");
  if constexpr (writes_loss<L>) {
    constexpr auto positions = static_cast<std::int64_t>(C::positions), width = static_cast<std::int64_t>(C::width);
    constexpr auto each = static_cast<std::int64_t>(loss::targets_of<L>(C::width));
    auto const n        = real.dim(0);
    auto const is_real  = compare(real, "GT", 0);
    auto const y        = convert(select(along_first(is_real, output), output, 0.0), Element::f32);
    auto const wanted   = convert(targets, std::is_integral_v<Target> ? Element::i32 : Element::f32);
    auto const losses =
        LossLowering<L>::rows(term.what, reshape(y, {n * positions, width}), reshape(wanted, {n * positions, each}));
    auto of_row = sum_last(reshape(losses, {n, positions}));  // (B)
    if (weights) of_row = of_row * reshape(convert(weights, Element::f32), {n});
    return sum(select(is_real, of_row, 0.0)) * static_cast<double>(term.weight / static_cast<float>(C::positions));
  } else {
    return {};
  }
}

}  // namespace chorale::nn::stablehlo
