// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace chorale {

/// What a training step must compute and read for one row, whatever program does it.
struct RowWork {
  std::size_t forward     = 0;  // multiplications of matrix products
  std::size_t backward    = 0;  // and multiplications for the gradients
  std::size_t activations = 0;  // numbers that forward writes
  std::size_t lookups     = 0;  // numbers of tables that ids name

  constexpr std::size_t products() const { return forward + backward; }
  friend constexpr bool operator==(RowWork const&, RowWork const&) = default;
};

/// RowWork of all layers of a network: of those whose values have one shape in each row, and, for each position of a
/// ragged field, of those whose values are ragged.
struct NetworkWork {
  RowWork of_row, of_position;

  friend constexpr bool operator==(NetworkWork const&, NetworkWork const&) = default;

  /// Multiplications of a step with so many rows, which have so many ragged positions in all.
  constexpr double products(double rows, double positions = 0) const {
    return rows * static_cast<double>(of_row.products()) + positions * static_cast<double>(of_position.products());
  }
  /// Bytes of activations and of rows of tables, each moved once, of such a step.
  constexpr double bytes(double rows, double positions = 0) const {
    auto const numbers = [](RowWork const& w) { return static_cast<double>(w.activations + w.lookups); };
    return 4 * (rows * numbers(of_row) + positions * numbers(of_position));
  }
};

/// What the speed of a model is counted in, by its first input: pictures (B, H, W, C) are images, ids (B, T) tokens, of
/// which a row has T, and everything else rows.
struct CountedAs {
  std::string_view name   = "rows";
  std::string_view scalar = "rows_per_second";  // name among the scalars of sinks
  std::size_t per_row     = 1;                  // 0: as many as a row has positions
  friend constexpr bool operator==(CountedAs const&, CountedAs const&) = default;
};

/// CountedAs of a first input.
///
/// dims     of one row; -1, first: ragged
/// is_ids   true if the input is of integers
constexpr CountedAs counted_as(auto const& dims, bool is_ids) {
  if (is_ids && dims.size() == 1 && dims[0] != 1)
    return {"tokens", "tokens_per_second", dims[0] < 0 ? 0 : static_cast<std::size_t>(dims[0])};
  if (!is_ids && dims.size() == 3) return {"images", "images_per_second", 1};
  return {};
}

}  // namespace chorale
