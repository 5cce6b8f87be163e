// SPDX-License-Identifier: Apache-2.0
//
// What rows of named fields and the stages of a pipeline ask about a list of fields.
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/error.hpp>
#include <chorale/data/field.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

namespace chorale {
namespace detail {

/// The element type of a Field; float where F is none, so that the sentence about F is the only error.
template <class F> struct NumberOfField : std::type_identity<float> {};
template <IsField F> struct NumberOfField<F> : std::type_identity<typename F::element_type> {};
template <class F> using FieldNumber = typename NumberOfField<F>::type;

template <class F> inline constexpr bool is_ragged      = false;
template <IsField F> inline constexpr bool is_ragged<F> = F::is_ragged;

/// The numbers of one row of a ragged field: `outer` blocks, each with `length` times `inner` numbers.
struct RaggedShape {
  std::size_t outer = 1, inner = 1;
  std::size_t ragged_dims = 0;

  constexpr std::size_t unit() const { return outer * inner; }  // numbers for each step of the length
};

template <IsField F>
inline constexpr RaggedShape ragged_shape = [] {
  auto shape = RaggedShape{};
  for (std::size_t i = 0; i < F::rank; ++i) {
    if (F::dims[i] == ragged) ++shape.ragged_dims;
    else (shape.ragged_dims == 0 ? shape.outer : shape.inner) *= static_cast<std::size_t>(F::dims[i]);
  }
  return shape;
}();

template <class G, class... F>
inline constexpr std::size_t times_in                    = (std::size_t{std::same_as<G, F> ? 1U : 0U} + ... + 0);
template <class... F> inline constexpr bool all_distinct = ((times_in<F, F...> == 1) && ...);

template <class F> inline constexpr bool begins_ragged      = false;
template <IsField F> inline constexpr bool begins_ragged<F> = F::is_ragged && ragged_shape<F>.outer == 1;

/// Refuses types that cannot make up a row. Returns false then. A function, as clang abandons a class with a failed
/// static_assert.
template <class... F> constexpr auto check_fields() {
  constexpr bool some = sizeof...(F) > 0, fields = (IsField<F> && ...), distinct = all_distinct<F...>;
  static_assert(some, "chorale: a row has at least one field");
  static_assert(fields,
                "chorale: a row consists of Fields, and this names a type that is none. Derive a type for each "
                "part of a row: struct Title : Field<int, 40> {};");
  static_assert(!fields || distinct,
                "chorale: a field is named twice. Derive a type for each part of a row: struct "
                "Title : Field<int, 40> {};");
  return some && fields && distinct;
}

/// The names of the fields of a row, and the place of each.
template <class... F> struct FieldList {
  static constexpr std::size_t count           = sizeof...(F);
  template <class G> static constexpr bool has = times_in<G, F...> != 0;
  template <class G>
  static constexpr std::size_t index = [] {
    auto const same = std::array<bool, count>{std::same_as<G, F>...};
    auto i          = std::size_t{0};
    while (i < count && !same[i]) ++i;
    return i;
  }();

  /// The place of the lengths of a ragged field after the values of all fields.
  template <class G>
  static constexpr std::size_t lengths_index = [] {
    auto const is = std::array<bool, count>{is_ragged<F>...};
    auto at       = count;
    for (std::size_t i = 0; i < index<G>; ++i) at += is[i] ? 1 : 0;
    return at;
  }();

  using checked = decltype(check_fields<F...>());
};

/// The name, element type and shape of a field in one text: "Title int(40)".
template <IsField F> std::string text_of_field() {
  using T   = typename F::element_type;
  auto text = type_name<F>() + (std::same_as<T, float> ? " float(" : std::same_as<T, int> ? " int(" : " byte(");
  for (std::size_t i = 0; i < F::rank; ++i)
    text.append(i > 0 ? "," : "") += (F::dims[i] == ragged ? std::string{"ragged"} : std::to_string(F::dims[i]));
  return text + ")";
}

/// Throws BadArgument: row number `row` has `got` numbers for a field.
template <IsField F> [[noreturn]] void wrong_size(std::size_t row, std::size_t got) {
  auto const begin =
      "row " + std::to_string(row) + ": field " + type_name<F>() + " has " + std::to_string(got) + " numbers, but ";
  if constexpr (F::is_ragged)
    throw BadArgument{begin + "a multiple of " + std::to_string(ragged_shape<F>.unit()) + " is needed.",
                      "a map that gives whole parts along the ragged dimension."};
  else
    throw BadArgument{begin + std::to_string(F::size) + " are needed.",
                      "a map that gives as many for every row, or a Field with a ragged dimension."};
}

/// Refuses a field of rows of a stream that has several ragged dimensions. Returns false then.
template <IsField F> constexpr bool check_ragged() {
  constexpr bool fits = ragged_shape<F>.ragged_dims <= 1;
  static_assert(fits, "chorale: a field of a row has one ragged dimension at most");
  return fits;
}

/// Throws BadArgument unless a row may have `got` numbers for field F.
///
/// row     its number, for the message
template <IsField F> void expect_size(std::size_t row, std::size_t got) {
  if constexpr (F::is_ragged) {
    static_cast<void>(check_ragged<F>());
    if (got % ragged_shape<F>.unit() != 0) wrong_size<F>(row, got);
  } else {
    if (got != F::size) wrong_size<F>(row, got);
  }
}

}  // namespace detail
}  // namespace chorale
