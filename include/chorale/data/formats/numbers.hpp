// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/text.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

namespace chorale::data::detail {

/// True if a number of a file is a T: in its range, and whole where T is. Floating-point numbers are rounded to T, and
/// NaN and infinity stay.
template <class T, class From> constexpr bool fits_in(From value) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<From> && std::is_integral_v<T>) {
    auto const made = static_cast<T>(value);
    return static_cast<From>(made) == value && (made < T{0}) == (value < From{0});
  } else if constexpr (std::is_integral_v<From>) {
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return value == std::floor(value) && value >= static_cast<From>(Limits::min()) &&
           value < std::ldexp(From{1}, Limits::digits);  // max() + 1
  } else {
    return !(std::abs(value) > Limits::max()) || std::isinf(value);
  }
}

/// Why a number does not fit: the rest of a sentence.
template <class T, class From> std::string why_not(From value) {
  if constexpr (std::is_integral_v<From>) {
    return "is " + std::to_string(value) + ", beyond the numbers of its type";
  } else {
    auto const whole = !std::is_integral_v<T> || value == std::floor(value);
    return "is " + number_text(value) + (whole ? ", beyond the numbers of its type" : ", no whole number");
  }
}

}  // namespace chorale::data::detail
