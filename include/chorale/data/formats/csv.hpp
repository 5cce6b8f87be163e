// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/observe/csv.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

namespace detail {

/// Why a number of a table cannot be a T; an empty text if it can.
template <class T>
std::string why_not(double value) {
  using Limits    = std::numeric_limits<T>;
  auto const text = [&] { return " is " + number_text(value); };
  if (!std::isfinite(value)) return " is empty, or no finite number.";
  if (std::is_integral_v<T> && value != std::floor(value)) return text() + ", no whole number.";
  bool const fits = std::is_integral_v<T> ? value >= static_cast<double>(Limits::min()) &&
                                                value < std::ldexp(1.0, Limits::digits)      // max() + 1
                                          : std::abs(value) <= static_cast<double>(Limits::max());
  return fits ? "" : text() + ", beyond the numbers of its type.";
}

}  // namespace detail

/// Rows of a CSV file of numbers whose first line names the columns: one is the target, all others are x, in their
/// order.
///
///   auto const rows = data::csv("iris.csv", "species");               // labels 0, 1, ..
///   auto const rows = data::csv<float, float>("houses.csv", "price");
///
/// throws  BadFile with the line or the column when there is no such target, a row is not whole, or a cell is empty, no
///         number, not in the range of its type or, for integers, no whole number
/// source  RFC 4180
template <class X = float, class Y = int>
Tensors<X, Y> csv(std::filesystem::path const& file, std::string_view target) {
  auto const table = read_csv(file, CsvFile::finished);
  auto const at    = static_cast<std::size_t>(std::ranges::find(table.names, target) - table.names.begin());
  auto const width = table.names.size() - 1;
  if (at > width) {
    auto names = std::string{};
    for (auto const& name : table.names) names += (names.empty() ? "" : ", ") + name;
    throw BadFile{file.string() + ": has no column " + std::string{target} + ".", "one of " + names + "."};
  }
  if (width == 0 || table.rows() == 0)
    throw BadFile{file.string() + ": has " + std::to_string(table.rows()) + " rows of " + std::to_string(width) +
                      " columns beside " + std::string{target} + ".", "a file with at least one of each."};
  auto x = std::vector<X>{};
  auto y = std::vector<Y>{};
  for (std::size_t row = 0; row < table.rows(); ++row)
    for (std::size_t column = 0; column <= width; ++column) {
      auto const add = [&]<class T>(std::vector<T>& to) {
        auto const value = table.columns[column][row];
        if (auto const why = detail::why_not<T>(value); !why.empty())
          throw BadFile{file.string() + ": row " + std::to_string(row + 1) + ", column " + table.names[column] + why,
                        "a file of whole rows of numbers."};
        to.push_back(static_cast<T>(value));
      };
      if (column == at) add(y);
      else add(x);
    }
  return from_tensors(std::move(x), std::move(y), width);
}

}  // namespace chorale::data
