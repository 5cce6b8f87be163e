// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/combine.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <cstddef>
#include <vector>

namespace chorale {

/// How the mean of integers becomes an integer: the largest one that is not above it, or the nearest one, of two equally
/// near ones the even one.
enum class IntegerMean { floor, nearest };

/// Replaces x by its mean over all ranks, each with the same weight: the same bits on every rank.
///
///   all_reduce_mean(RingAllReduce{}, at, Span<float>{x});
///   all_reduce_mean<IntegerMean::nearest>(RingAllReduce{}, at, Span<std::int64_t>{counts});
///
/// order   floats: the sum in the order of `by`, divided once. Integers are exact: no sum of them is formed that could
///         overflow
/// cost    like `by`; for integers, with twice as many elements, and a vector of these
/// throws  like `by`
template <class R, Endpoint E, Reducible T> void all_reduce_mean(R const& by, E& at, Span<T> x, Tag tag = {}) {
  static_assert(!std::integral<T>,
                "chorale: the mean of integers is no integer without a rule: "
                "all_reduce_mean<IntegerMean::floor>, or <IntegerMean::nearest>; or all_reduce, and "
                "a division of one's own");
  if constexpr (!std::integral<T>) {
    by.all_reduce(at, x, Op::sum, tag);
    using In = typename detail::computed_in<T>::type;
    for (auto& value : x) value = static_cast<T>(static_cast<In>(value) / static_cast<In>(at.size()));
  }
}
template <IntegerMean rule, class R, Endpoint E, Reducible T> requires std::integral<T>
void all_reduce_mean(R const& by, E& at, Span<T> x, Tag tag = {}) {
  auto const P = static_cast<T>(at.size());
  auto parts   = std::vector<T>(2 * x.size());  // of each number: quotient, and remainder
  for (std::size_t i = 0; i < x.size(); ++i) {
    parts[i]            = x[i] / P;
    parts[x.size() + i] = x[i] % P;  // of the number's sign
  }
  by.all_reduce(at, Span<T>{parts}, Op::sum, tag);
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto const rest     = parts[x.size() + i];  // the sum is parts[i] · P + rest
    auto const negative = rest % P < 0;
    auto const left     = static_cast<T>(rest % P + (negative ? P : 0));  // above the integer
    auto const gap      = static_cast<T>(P - left);                       // below the next one
    x[i]                = parts[i] + (rest / P - (negative ? 1 : 0));
    if (rule == IntegerMean::nearest && (left > gap || (left == gap && x[i] % 2 != 0))) ++x[i];
  }
}

}  // namespace chorale
