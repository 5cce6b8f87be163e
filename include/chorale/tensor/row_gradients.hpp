// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chorale {

/// Rows of the gradient of a table, as they are stored and sent: row rows[i] has the vector vectors[i] of values. Several
/// rows may have one vector, such as all words of a bag.
///
/// values    (number of vectors, width)
struct RowsView {
  Span<std::uint32_t const> rows, vectors;
  Span<float const> values;
  std::size_t first = 0;  // number of the first of the vectors

  std::size_t bytes() const { return rows.size_bytes() + vectors.size_bytes() + values.size_bytes(); }
};

/// The gradient of a table from which a step reads a few rows, such as an nn::Embedding's: the rows that are not zero,
/// each once, in the order in which they first came.
///
///   table (1,000,000 x 64), ids 7 3 7      rows 7 3      vectors 0 1      values: dy[0] + dy[2], dy[1]
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
  std::size_t size() const { return rows_.size(); }  // rows that are not zero

  Span<std::uint32_t const> rows() const { return rows_; }
  /// All vectors; several rows may share one: (number of vectors, width).
  Span<float const> values() const { return values_; }
  /// The gradient of row rows()[i].
  Span<float const> operator[](std::size_t i) const {
    return Span<float const>{values_}.subspan(vectors_[i] * width_, width_);
  }
  RowsView view() const { return {rows_, vectors_, values_}; }
  /// The index of a row in rows(); size() if it is not there.
  std::size_t find(std::size_t row) const { return place_[row] == none ? size() : place_[row]; }

  /// Adds the gradient of one row of the table.
  ///
  /// row       below table_rows(); gradient: (width)
  void add(std::size_t row, float const* gradient) {
    if (auto const place = place_[row]; place != none) add_to(place, gradient);
    else append(row, push(gradient, false));
  }

  /// Stores a vector that is the gradient of several rows, and returns its index for add_shared().
  std::size_t share(float const* gradient) { return push(gradient, true); }

  /// Adds a shared vector to the gradient of a row.
  void add_shared(std::size_t row, std::size_t vector) {
    if (auto const place = place_[row]; place == none) append(row, vector);
    else {
      own(place);
      sum(values_.data() + vectors_[place] * width_, values_.data() + vector * width_);
    }
  }

  /// Adds the gradients of several rows, one after another. A row may occur several times.
  void add(RowsView const& more) {
    auto const first = values_.size() / width_;
    values_.insert(values_.end(), more.values.begin(), more.values.end());
    shared_.resize(values_.size() / width_, true);
    for (std::size_t i = 0; i < more.rows.size(); ++i) {
      if (i + ahead < more.rows.size()) fetch(more.rows[i + ahead]);
      add_shared(more.rows[i], first + more.vectors[i] - more.first);
    }
  }

  /// Begins a part, whose rows are kept apart from those before: of the logical shard of another rank. A row may occur in
  /// several parts; find() knows the rows of the last part.
  void begin_part(Rank of) {
    for (auto i = parts_.empty() ? 0 : parts_.back().row; i < rows_.size(); ++i) place_[rows_[i]] = none;
    parts_.push_back({of, rows_.size(), values_.size() / width_});
  }
  /// Calls f(rank, view) for each part.
  template <class F> void each_part(F&& f) const {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      auto const& [of, row, vector] = parts_[p];
      auto const rows               = (p + 1 < parts_.size() ? parts_[p + 1].row : rows_.size()) - row;
      auto const vectors            = (p + 1 < parts_.size() ? parts_[p + 1].vector : values_.size() / width_) - vector;
      f(of, RowsView{Span<std::uint32_t const>{rows_}.subspan(row, rows),
                     Span<std::uint32_t const>{vectors_}.subspan(row, rows),
                     Span<float const>{values_}.subspan(vector * width_, vectors * width_), vector});
    }
  }

  /// Asks the memory for the place of a row that is added soon.
  void fetch(std::size_t row) const { __builtin_prefetch(&place_[row], 1); }

  void clear() {
    for (auto const row : rows_) place_[row] = none;
    rows_.clear(), vectors_.clear(), values_.clear(), shared_.clear(), parts_.clear();
  }

 private:
  static constexpr auto none         = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t ahead = 16;  // rows whose place is fetched before

  std::size_t push(float const* gradient, bool shared) {
    auto const n = values_.size();
    values_.resize(n + width_);
    std::copy_n(gradient, width_, values_.data() + n);
    shared_.push_back(shared);
    return n / width_;
  }
  void append(std::size_t row, std::size_t vector) {
    place_[row] = static_cast<std::uint32_t>(rows_.size());
    rows_.push_back(static_cast<std::uint32_t>(row));
    vectors_.push_back(static_cast<std::uint32_t>(vector));
  }
  /// Gives a row its own vector.
  void own(std::size_t place) {
    auto const before = vectors_[place];
    if (shared_[before] == 0) return;
    values_.resize(values_.size() + width_);
    std::copy_n(values_.data() + before * width_, width_, values_.data() + values_.size() - width_);
    shared_.push_back(0);
    vectors_[place] = static_cast<std::uint32_t>(shared_.size() - 1);
  }
  void add_to(std::size_t place, float const* gradient) {
    own(place);
    sum(values_.data() + vectors_[place] * width_, gradient);
  }
  void sum(float* to, float const* more) const {
    for (std::size_t c = 0; c < width_; ++c) to[c] += more[c];
  }

  std::size_t variable_, width_;
  std::vector<std::uint32_t> place_;  // of each row of the table in rows_, or none
  std::vector<std::uint32_t> rows_, vectors_;
  std::vector<float> values_;
  std::vector<char> shared_;  // of each vector: several rows may have it
  struct Part {
    Rank of;
    std::size_t row, vector;  // the first ones
  };
  std::vector<Part> parts_;
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
  std::vector<std::uint32_t> rows, vectors;
  std::vector<float> values;  // (number of vectors, width)

  void append(RowGradients const& more) { append(more.view(), more.width()); }
  void append(RowsView const& view, std::size_t width) {
    auto const first = static_cast<std::uint32_t>(values.size() / width);
    rows.insert(rows.end(), view.rows.begin(), view.rows.end());
    for (auto const vector : view.vectors) vectors.push_back(first + vector - static_cast<std::uint32_t>(view.first));
    values.insert(values.end(), view.values.begin(), view.values.end());
  }
  void clear() { rows.clear(), vectors.clear(), values.clear(); }
  RowsView view() const { return {rows, vectors, values}; }
};

}  // namespace chorale
