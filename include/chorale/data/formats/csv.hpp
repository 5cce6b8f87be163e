// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/data/dataset.hpp>
#include <chorale/observe/csv.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Rows of a CSV file of numbers whose first line names the columns: one is the target, all others are x, in their
/// order.
///
///   auto const rows = data::csv("iris.csv", "species");               // labels 0, 1, ..
///   auto const rows = data::csv<float, float>("houses.csv", "price");
///
/// throws  BadFile with the line or the column when there is no such target, a cell is empty or no number, or a label
///         is no whole number
/// source  RFC 4180
template <class X = float, class Y = int>
Tensors<X, Y> csv(std::filesystem::path const& file, std::string_view target) {
  auto const table = read_csv(file);
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
      auto const value = table.columns[column][row];
      auto const bad   = [&](std::string const& why) {
        throw BadFile{file.string() + ": row " + std::to_string(row + 1) + ", column " + table.names[column] + why,
                      "a file of whole rows of numbers."};
      };
      if (!std::isfinite(value)) bad(" is empty, or no finite number.");
      if (column != at) {
        x.push_back(static_cast<X>(value));
        continue;
      }
      if (std::is_integral_v<Y> && value != std::floor(value))
        bad(" is " + std::to_string(value) + ", no whole number.");
      y.push_back(static_cast<Y>(value));
    }
  return from_tensors(std::move(x), std::move(y), width);
}

}  // namespace chorale::data
