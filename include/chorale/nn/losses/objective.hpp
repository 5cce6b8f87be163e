// SPDX-License-Identifier: Apache-2.0
//
// What the outputs of a network are compared with: losses that add up, and metrics.
#pragma once

#include <chorale/data/field.hpp>

#include <cstddef>
#include <tuple>
#include <utility>

namespace chorale::nn {

/// A loss or a metric of the output of a network that field F names. See nn::of.
///
/// T         a loss or a metric
/// Weights   a field with one number, by which the loss of each row is multiplied; void: all rows weigh 1
template <class F, class T, class Weights = void> struct OfOutput {
  using field      = F;
  using row_weight = Weights;

  T what;
  float weight = 1;

  /// Multiplies the loss of each row by its number in field W, which may be below 0, as an advantage is. The sum is still
  /// divided by the number of rows, as in Keras.
  template <IsField W> constexpr OfOutput<F, T, W> weighted_by(W) const {
    static_assert(W::rank <= 1 && W::size == 1,
                  "chorale: the field that weighs rows has one number for each row: struct "
                  "Importance : Field<float, 1> {}");
    return {what, weight};
  }
};

/// A sum of losses of several outputs.
template <class... Terms> struct Objective {
  std::tuple<Terms...> terms;
};

/// A loss or a metric of the output that nn::outputs names by field F. A loss compares it with the field F of the batch.
///
///   nn::of<Priority>(loss::BinaryCrossEntropy{}) + 0.2F * nn::of<Department>(loss::SparseCrossEntropy{})
///
/// source    the dictionaries `loss` and `loss_weights` of tf.keras.Model.compile
template <class F, class T> constexpr OfOutput<F, T> of(T what) {
  static_assert(IsField<F>, "chorale: nn::of<F>(...) takes a field that nn::outputs<...> names");
  return {std::move(what)};
}

namespace detail {

template <class T> inline constexpr bool is_of_output                                      = false;
template <class F, class T, class W> inline constexpr bool is_of_output<OfOutput<F, T, W>> = true;

template <class F, class T, class W> constexpr auto terms_of(OfOutput<F, T, W> const& term) { return std::tuple{term}; }
template <class... Terms> constexpr auto terms_of(Objective<Terms...> const& sum) { return sum.terms; }

template <class... Terms> constexpr Objective<Terms...> sum_of(std::tuple<Terms...> terms) {
  return {std::move(terms)};
}

template <class T> concept IsObjective = requires(T const& term) { detail::terms_of(term); };

}  // namespace detail

/// The sum of two losses.
template <detail::IsObjective A, detail::IsObjective B> constexpr auto operator+(A const& a, B const& b) {
  return detail::sum_of(std::tuple_cat(detail::terms_of(a), detail::terms_of(b)));
}

/// A loss times a number.
template <class F, class T, class W> constexpr OfOutput<F, T, W> operator*(float weight, OfOutput<F, T, W> term) {
  term.weight *= weight;
  return term;
}
/// A sum of losses times a number.
template <class... Terms> constexpr Objective<Terms...> operator*(float weight, Objective<Terms...> sum) {
  std::apply([&](auto&... term) { ((term.weight *= weight), ...); }, sum.terms);
  return sum;
}

}  // namespace chorale::nn
