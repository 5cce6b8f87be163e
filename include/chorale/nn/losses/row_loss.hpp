// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/sum.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

namespace chorale::loss {

/// A loss that is one function of a row.
///
///   struct LogCosh {
///     using target = float;
///     float row(Span<float const> y, Span<float const> wanted, Span<float> dy) const;      // dy: its gradient by y
///   };
///
///   targets(width)     optional, static: targets of a row. Without it one if target is int, else as many as outputs
///   check(rows, width, target), options(visit), takes_logits, takes_probabilities, takes_binary_logits,
///   takes_binary_probabilities, least_outputs     optional: see loss.hpp
///
/// keeps     dy is zeros when row is called
template <class L>
concept RowLoss = requires(L const& loss, Span<float const> y, Span<typename L::target const> wanted, Span<float> dy) {
  { loss.row(y, wanted, dy) } -> std::convertible_to<float>;
};

/// Number of targets of a row, for a network with `width` outputs.
template <class L> constexpr std::size_t targets_of(std::size_t width) {
  if constexpr (requires { L::targets(width); }) return L::targets(width);
  else return std::is_integral_v<typename L::target> ? 1 : width;
}

/// The fewest outputs that a loss or a metric tells apart.
template <class T> constexpr std::size_t least_outputs_of() {
  if constexpr (requires { T::least_outputs; }) return T::least_outputs;
  else return 1;
}

/// Checks the targets of a batch, in host memory.
///
/// throws    what the loss throws when one is not valid
template <class L>
void check_targets(L const& loss, std::size_t rows, std::size_t width, typename L::target const* wanted) {
  if constexpr (requires { loss.check(rows, width, wanted); }) loss.check(rows, width, wanted);
}

namespace detail {

/// The sum over rows of a function of a row; sets the gradient, row by row.
template <class L>
float sum_of_rows(L const& loss, std::size_t rows, std::size_t width, float const* y, typename L::target const* wanted,
                  float* dy) {
  auto const targets = targets_of<L>(width);
  std::fill_n(dy, rows * width, 0.0F);
  return static_cast<float>(sum_over(rows, [&](std::size_t r) -> float {
    return loss.row(Span<float const>{y + r * width, width},
                    Span<typename L::target const>{wanted + r * targets, targets}, Span<float>{dy + r * width, width});
  }));
}

}  // namespace detail

/// The sum of a loss over rows, and its gradient by the outputs, on device D: of a loss in either form.
///
/// y, dy     (rows, width); wanted: (rows, targets_of<L>(width)); all of dy is written
/// throws    BadArgument when a target is not valid
template <class D, class L>
float sum_of(L const& loss, std::size_t rows, std::size_t width, float const* y, typename L::target const* wanted,
             float* dy) {
  if constexpr (requires { loss.template compute<D>(rows, width, y, wanted, dy); }) {
    return loss.template compute<D>(rows, width, y, wanted, dy);
  } else {
    static_assert(RowLoss<L>,
                  "chorale: a loss needs float row(Span<float const> y, Span<target const> wanted, Span<float> dy) "
                  "const, or compute<D>(rows, width, y, wanted, dy). See docs/60-write-your-own.md");
    if constexpr (RowLoss<L>) {
      check_targets(loss, rows, width, wanted);
      return detail::sum_of_rows(loss, rows, width, y, wanted, dy);
    } else {
      return 0;
    }
  }
}

namespace detail {

/// Refuses loss L, which loops of the host compute, on a device that queues its work.
template <class D, class L> void refuse_device() {
  static_assert(sizeof(D) == 0,
                "chorale: this loss runs on CPUs only. On a GPU use loss::SparseCrossEntropy, "
                "loss::CrossEntropy or loss::MeanSquaredError, or a strategy over Cpu; one of your own "
                "needs queue<D>(rows, width, output, target, d_output, to)");
}

inline void check_smoothing(float smoothing) {
  CHORALE_EXPECTS(smoothing >= 0 && smoothing <= 1,
                  "label_smoothing is a number from 0 to 1, got " + number_text(smoothing));
}

}  // namespace detail
}  // namespace chorale::loss
