// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/type_name.hpp>

#include <array>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace chorale {

/// A type whose objects name their options: `options(visit)` calls visit(name, value) for each of them.
template <class T>
concept NamesOptions = requires(T const& object) { object.options([](std::string_view, auto const&) {}); };

/// A value as one word without spaces: a number in the fewest digits that restore it, or the value's text().
template <class V>
std::string word_of(V const& value) {
  if constexpr (std::convertible_to<V const&, std::string_view>) {
    return std::string{std::string_view{value}};
  } else if constexpr (requires { { value.text() } -> std::convertible_to<std::string>; }) {
    return value.text();
  } else if constexpr (std::same_as<V, bool>) {
    return value ? "yes" : "no";
  } else if constexpr (std::is_enum_v<V>) {
    return word_of(static_cast<std::underlying_type_t<V>>(value));
  } else if constexpr (std::is_integral_v<V>) {
    return std::to_string(value);
  } else {
    static_assert(std::is_floating_point_v<V>,
                  "chorale: options(visit) may give numbers, enumerations, texts, and objects with a text()");
    auto digits    = std::array<char, 128>{};
    auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    return {digits.data(), end};
  }
}

/// Name of a type as ranks compare it: its static text() if it has one, else its type_name().
template <class T>
std::string text_of() {
  if constexpr (requires { { T::text() } -> std::convertible_to<std::string>; }) return T::text();
  else return type_name<T>();
}

/// Appends the description of an object, in lines that ranks compare: its type, then each of its options.
///
///   optimizer Adam
///   optimizer Adam learning_rate 0.001
///
/// keeps   fields of an object that does not name its options are not included
template <class T>
void describe(std::string const& what, T const& object, std::vector<std::string>& lines) {
  auto const begin = what + " " + text_of<T>();
  lines.push_back(begin);
  if constexpr (NamesOptions<T>)
    object.options([&](std::string_view name, auto const& value) {
      lines.push_back(begin + " " + std::string{name} + " " + word_of(value));
    });
}

}  // namespace chorale
