// SPDX-License-Identifier: Apache-2.0
//
// Rows of named fields that are easy to recognise, and what reads a whole pass of them.
#pragma once

#include "test/data/sources.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace sources {

struct Pair : Field<float, 2> {};
struct Number : Field<int, 1> {};
struct Word : Field<std::uint8_t, ragged> {};
struct Frames : Field<float, ragged, 2> {};

/// Row i: Pair {i, -i}, Number {i}.
struct ToPair {
  void operator()(Sample<float, int> const& row, NewRow<Pair, Number>& to) const {
    to[Pair{}].assign(row.x.begin(), row.x.end());
    to[Number{}].assign(row.y.begin(), row.y.end());
  }
};

inline auto pairs(std::size_t n) { return Counting{n}.map<Pair, Number>(ToPair{}); }

/// The text of row i: the digits of i, i % 4 times.
inline std::string word(int i) {
  auto text = std::string{};
  for (int k = 0; k < i % 4; ++k) text += std::to_string(i);
  return text;
}

/// Row i: Number {i}, Word word(i).
struct ToWord {
  void operator()(Sample<float, int> const& row, NewRow<Number, Word>& to) const {
    auto const text = word(row.y[0]);
    to[Number{}].assign(1, row.y[0]);
    to[Word{}].assign(text.begin(), text.end());
  }
};

inline auto words(std::size_t n) { return Counting{n}.map<Number, Word>(ToWord{}); }

template <class Element, class G> inline constexpr bool has             = false;
template <class... F, class G> inline constexpr bool has<Row<F...>, G>  = (std::is_same_v<F, G> || ...);
template <class... F, class G> inline constexpr bool has<Rows<F...>, G> = (std::is_same_v<F, G> || ...);

/// Throws when the fields of a row do not belong to its Number.
template <class... F> void expect_row(Row<F...> const& row) {
  auto const i = row[Number{}][0];
  auto right   = row[Number{}].size() == 1;
  if constexpr (has<Row<F...>, Word>) right = right && row.text(Word{}) == word(i);
  if constexpr (has<Row<F...>, Pair>)
    right = right && row[Pair{}].size() == 2 && row[Pair{}][0] == static_cast<float>(i) &&
            row[Pair{}][1] == -static_cast<float>(i);
  if (!right) throw std::logic_error{"fields of different rows: " + std::to_string(i)};
}

/// Throws when the fields of a row of a batch do not belong to its Number, or the padding is not zeros.
template <class... F> void expect_row(Rows<F...> const& batch, std::size_t i) {
  auto row     = Row<F...>{};
  row.fields() = {batch.unpadded(F{}, i)...};
  expect_row(row);
  if constexpr (has<Rows<F...>, Word>) {
    auto const all = batch[Word{}].subspan(i * batch.width(Word{}), batch.width(Word{}));
    for (auto const byte : all.subspan(row[Word{}].size()))
      if (byte != 0) throw std::logic_error{"the padding of row " + std::to_string(i)};
  }
}

/// The numbers of a pass, in order; throws when another field of a row does not belong to its number.
///
/// error   gets what a BadArgument that ends the pass says; null: it is thrown
template <class D> std::vector<int> numbers(D const& dataset, std::size_t epoch = 0, std::string* error = nullptr) {
  auto all    = std::vector<int>{};
  auto stream = dataset.stream(epoch);
  try {
    for (typename D::element e; stream.next(e);) {
      if constexpr (requires { e.rows; }) {
        for (std::size_t i = 0; i < e.rows; ++i) expect_row(e, i);
      } else {
        expect_row(e);
      }
      all.insert(all.end(), e[Number{}].begin(), e[Number{}].end());
    }
  } catch (BadArgument const& why) {
    if (error == nullptr) throw;
    *error = why.what();
  }
  return all;
}

}  // namespace sources
