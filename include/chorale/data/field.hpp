// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace chorale {

/// The size of a dimension that differs from batch to batch, such as the length of a sentence.
inline constexpr int ragged = -1;

/// True if a field may hold elements of type T.
template <class T>
concept FieldElement = std::same_as<T, float> || std::same_as<T, int> || std::same_as<T, std::uint8_t>;

namespace detail {

/// The element type of a Field of T; int in place of one that is refused, so that the sentence is the only error. A
/// function, as clang abandons a class with a failed static_assert.
template <class T> constexpr auto element_of_field() {
  static_assert(FieldElement<T>,
                "chorale: a Field has elements of float, int or std::uint8_t. Labels of another integer "
                "type are a Field<int, ..>, for which from_fields converts them");
  return std::conditional_t<FieldElement<T>, T, int>{};
}

}  // namespace detail

/// A named part of a row of data. A user derives one type from it for each part:
///
///   struct Title : Field<int, 40> {};            // (B, 40) word ids
///   struct Priority : Field<float, 1> {};        // (B, 1)
///   struct Body : Field<int, ragged> {};         // (B, longest body of the batch)
///
/// T         float, int, or std::uint8_t for bytes
/// D         the shape of one row; the batch dimension is not in it. A row of a stream has at most one ragged dimension
template <class T, int... D> struct Field {
  static_assert(((D > 0 || D == ragged) && ...), "chorale: each dimension of a Field is at least 1, or ragged");

  using element_type                          = decltype(detail::element_of_field<T>());
  static constexpr std::size_t rank           = sizeof...(D);
  static constexpr std::array<int, rank> dims = {D...};
  static constexpr bool is_ragged             = ((D == ragged) || ...);
  // Numbers of one row; 0 if the field is ragged.
  static constexpr std::size_t size           = is_ragged ? 0 : (std::size_t{1} * ... * static_cast<std::size_t>(D));
};

namespace detail {

template <class T, int... D> Field<T, D...> field_base(Field<T, D...> const&);

}  // namespace detail

/// True if F is a Field, or a type derived from one.
template <class F> concept IsField = requires(F const& f) { detail::field_base(f); };

}  // namespace chorale
