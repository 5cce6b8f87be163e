// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/replica_digest.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace chorale {

/// The numbers before the gradients of a step, by their names: sums over rows, which are reduced with the gradients.
///
///            0       1      2              15
///   header | loss  | rows | metric 0 | ... metric 13 |                   or, of a loss that counts positions, these
///          | gradients of all variables               |
///   trailer| faults| rank | variable | summed | digest of 11 numbers | asked |
///            0       1      2          3        4 .. 14                15
///
/// T         float, or double where headers of many steps are added up; const in a header that is only read
/// keeps     a view; it costs nothing
template <class T> class StepHeader {
 public:
  static constexpr std::size_t rows_at     = 1;  // for kernels, which see single elements
  static constexpr std::size_t max_metrics = plan::header - 2;

  /// values    begins with the header: a header alone, or flat gradients
  explicit constexpr StepHeader(Span<T> values) : values_{values.first(plan::header)} {}

  constexpr T& loss() const { return values_[0]; }                      // sum over rows()
  constexpr T& rows() const { return values_[rows_at]; }                // exact up to 2^24 in float
  constexpr T& metric(std::size_t i) const { return values_[2 + i]; }   // sum over rows()
  constexpr T& positions() const { return values_[plan::header - 1]; }  // loss() is over them; 0: over rows
  constexpr Span<T> all() const { return values_; }

 private:
  Span<T> values_;
};

/// The numbers after the gradients of a step, by their names: what replicas report to each other. See StepHeader for
/// the layout.
///
/// keeps     a view; it costs nothing. All numbers are sums after gradients were reduced: rank() and variable() say
///           which replica and which variable only if faults() is 1
template <class T> class StepTrailer {
 public:
  static constexpr std::size_t summed_at = 3;  // for kernels, which see single elements

  /// values    ends with the trailer: a trailer alone, or flat gradients
  explicit constexpr StepTrailer(Span<T> values) : values_{values.last(plan::trailer)} {}

  constexpr T& faults() const { return values_[0]; }          // replicas whose gradients are not finite
  constexpr T& rank() const { return values_[1]; }            // of such a replica
  constexpr T& variable() const { return values_[2]; }        // index of its first bad variable
  constexpr T& summed() const { return values_[summed_at]; }  // how many gradients were added up
  constexpr Span<T> digest() const { return values_.subspan(4, ReplicaDigest::size); }  // ReplicaDigest, or zeros
  constexpr T& asked() const { return values_[plan::trailer - 1]; }  // replicas that were asked to end
  constexpr Span<T> all() const { return values_; }

 private:
  static_assert(4 + ReplicaDigest::size < plan::trailer);

  Span<T> values_;
};

/// A number of a header or trailer as an index below n; n if it is none, as a sum of what ranks have sent may be.
constexpr std::size_t index_below(float number, std::size_t n) {
  return number >= 0 && number < static_cast<float>(n) ? std::min(static_cast<std::size_t>(number), n) : n;
}

template <class Values>
StepHeader(Values&&) -> StepHeader<std::remove_reference_t<decltype(*std::data(std::declval<Values&>()))>>;
template <class Values>
StepTrailer(Values&&) -> StepTrailer<std::remove_reference_t<decltype(*std::data(std::declval<Values&>()))>>;

}  // namespace chorale
