// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chorale {

/// The gradient of a table of which a step reads a few rows, such as that of an nn::Embedding: the rows that are not
/// zero, each once, in the order in which they first came.
///
///   table (1,000,000 x 64), ids 7 3 7      rows() 7 3      values() 7: dy[0] + dy[2], 3: dy[1]
///
/// keeps   memory for the rows of the largest step so far, and 4 bytes for each row of the table
/// cost    add() and clear() take a time that does not depend on the size of the table, and allocate nothing once as
///         many rows were seen
/// order   the gradients of a row are added up in the order of the calls of add()
class RowGradients {
 public:
  /// variable    index of the table in the plan
  RowGradients(std::size_t variable, std::size_t table_rows, std::size_t width)
      : variable_{variable}, width_{width}, place_(table_rows, none) {}

  std::size_t variable() const { return variable_; }
  std::size_t table_rows() const { return place_.size(); }
  std::size_t width() const { return width_; }

  Span<std::uint32_t const> rows() const { return rows_; }
  Span<float const> values() const { return values_; }                     // (rows, width)
  Span<float> values() { return values_; }

  /// Adds the gradient of one row of the table.
  ///
  /// row       below table_rows(); gradient: (width)
  void add(std::size_t row, float const* gradient) {
    auto& place = place_[row];
    if (place == none) {
      place = static_cast<std::uint32_t>(rows_.size());
      rows_.push_back(static_cast<std::uint32_t>(row));
      values_.insert(values_.end(), gradient, gradient + width_);
      return;
    }
    auto* const sum = values_.data() + place * width_;
    for (std::size_t c = 0; c < width_; ++c) sum[c] += gradient[c];
  }

  /// Adds the gradients of several rows, one after another. A row may occur several times.
  void add(Span<std::uint32_t const> rows, Span<float const> gradients) {
    for (std::size_t i = 0; i < rows.size(); ++i) add(rows[i], gradients.data() + i * width_);
  }

  void clear() {
    for (auto const row : rows_) place_[row] = none;
    rows_.clear();
    values_.clear();
  }

 private:
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();

  std::size_t variable_, width_;
  std::vector<std::uint32_t> place_;                                       // of each row of the table in rows_, or none
  std::vector<std::uint32_t> rows_;
  std::vector<float> values_;
};

/// A RowGradients for each variable of the plan whose gradient is rows, in the plan's order.
inline std::vector<RowGradients> row_gradients_of(PlanView const& plan) {
  auto all = std::vector<RowGradients>{};
  for (std::size_t i = 0; i < plan.variables.size(); ++i) {
    auto const& v = plan.variables[i];
    if (!v.spec.by_rows) continue;
    auto const rows = static_cast<std::size_t>(v.spec.dims[0]);
    all.emplace_back(i, rows, v.size / rows);
  }
  return all;
}

/// Rows of the gradient of a table that were put aside, one batch after another; a row may occur several times.
struct RowList {
  std::vector<std::uint32_t> rows;
  std::vector<float> values;                                               // (rows, width)

  void append(RowGradients const& more) {
    rows.insert(rows.end(), more.rows().begin(), more.rows().end());
    values.insert(values.end(), more.values().begin(), more.values().end());
  }
  void clear() { rows.clear(), values.clear(); }
};

}  // namespace chorale
