// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/nn/lowering/program.hpp>

#include <concepts>

namespace chorale::nn::stablehlo {

/// How a loss is written in operations; its gradient follows from them. Specialised here for the losses of the library;
/// for a custom loss, by a program.
///
///   template <>
///   struct LossLowering<my::LogCosh> {
///     static Value rows(my::LogCosh const& loss, Value y, Value targets);         // (N, width), (N, targets) -> (N)
///   };
///
/// y, targets    of Element::f32; labels of Element::i32
/// returns       the loss of each row
template <class L> struct LossLowering;

/// True if a loss says how it is written in operations.
template <class L>
inline constexpr bool writes_loss = requires(L const& loss, Value y) {
  { LossLowering<L>::rows(loss, y, y) } -> std::same_as<Value>;
};

namespace detail {

/// f with a gradient by y that its operations do not have: they have none, or not to all digits. Element by element.
inline Value with_slope(Value f, Value y, Value slope) {
  return stop_gradient(f) + (y - stop_gradient(y)) * stop_gradient(slope);
}
inline Value mean_of_row(Value x) { return sum_last(x) * (1.0F / static_cast<float>(x.dim(1))); }

}  // namespace detail
}  // namespace chorale::nn::stablehlo
