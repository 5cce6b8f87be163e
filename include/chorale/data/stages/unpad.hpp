// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/describe.hpp>
#include <chorale/core/error.hpp>
#include <chorale/data/pipe.hpp>
#include <chorale/data/stages/map.hpp>
#include <chorale/data/typed_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace chorale::data {

namespace detail {

/// The type of a row with one field in the place of another.
template <class Row, class From, class To> struct WithField;
template <class... F, class From, class To> struct WithField<Row<F...>, From, To> {
  using type = Row<std::conditional_t<std::is_same_v<F, From>, To, F>...>;
};

}  // namespace detail

/// Copies a row, with a ragged field in place of a padded one. See Pipe::unpad.
///
///   [5 7 2 0 0]        [5 7 2]
///   [0 0 0 0 9]   ->   [9]
///   [3 0 0 0 0]        [3]
///
/// throws    BadArgument when a row has padding between its positions, or no position that is not padding
template <class In, IsField From, IsField To> class Unpad {
  using T = typename From::element_type;

 public:
  using row_type = typename detail::WithField<In, From, To>::type;

  explicit Unpad(Unpadding<From> how) : how_{how} {}

  /// The rows of a dataset, so changed.
  template <class D> static auto rows(D from, Unpadding<From> how) {
    return Mapped<D, Unpad, row_type>{std::move(from), Unpad{how}};
  }

  void operator()(In const& row, auto& to, Place at) const { copy(row, to, at, row); }

 private:
  template <class... F> void copy(In const& row, auto& to, Place at, Row<F...> const&) const {
    (
        [&] {
          if constexpr (std::is_same_v<F, From>) {
            auto const kept = positions(row[F{}], at);
            to[To{}].assign(kept.begin(), kept.end());
          } else {
            to[F{}].assign(row[F{}].begin(), row[F{}].end());
          }
        }(),
        ...);
  }

  /// What is left of a row without the padding at its ends.
  Span<T const> positions(Span<T const> all, Place at) const {
    constexpr auto steps = static_cast<std::size_t>(From::dims[0]), size = From::size / steps;
    auto const is_padding = [&](std::size_t t) {
      return std::ranges::all_of(all.subspan(t * size, size), [&](T x) { return x == how_.value; });
    };
    auto first = std::size_t{0}, end = steps;
    while (first < end && is_padding(first)) ++first;
    while (first < end && is_padding(end - 1)) --end;
    auto const begin = "row " + std::to_string(at.row) + ": field " + type_name<From>();
    if (first == end && how_.empty_rows == EmptyRows::refuse)
      throw BadArgument{begin + " has nothing but padding: all " + std::to_string(steps) + " positions are " +
                            word_of(how_.value) + ".",
                        "a filter that leaves such rows out, or {.empty_rows = data::EmptyRows::keep}."};
    for (auto t = first; t < end; ++t)
      if (is_padding(t))
        throw BadArgument{begin + " has padding " + word_of(how_.value) + " at position " + std::to_string(t) +
                              ", but the row goes on to position " + std::to_string(end - 1) + ".",
                          "padding that is no value of a position, or a map that says what is left out."};
    return all.subspan(first * size, (end - first) * size);
  }

  Unpadding<From> how_;
};

}  // namespace chorale::data
