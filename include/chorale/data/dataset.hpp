// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The input pipeline: the concept Dataset and the names of its stages (pipe.hpp), every stage, and rows in memory.

#include <chorale/data/pipe.hpp>
#include <chorale/data/rows.hpp>
#include <chorale/data/stages/batch.hpp>
#include <chorale/data/stages/bucket_by_length.hpp>
#include <chorale/data/stages/cache.hpp>
#include <chorale/data/stages/concatenate.hpp>
#include <chorale/data/stages/file_cache.hpp>
#include <chorale/data/stages/filter.hpp>
#include <chorale/data/stages/generator.hpp>
#include <chorale/data/stages/int_labels.hpp>
#include <chorale/data/stages/interleave.hpp>
#include <chorale/data/stages/map.hpp>
#include <chorale/data/stages/padded_batch.hpp>
#include <chorale/data/stages/parallel_map.hpp>
#include <chorale/data/stages/prefetch.hpp>
#include <chorale/data/stages/repeat.hpp>
#include <chorale/data/stages/shuffle.hpp>
#include <chorale/data/stages/unpad.hpp>
#include <chorale/data/stages/window.hpp>
#include <chorale/data/threads/auto_tune.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace chorale::data {

/// Rows in memory. See from_tensors and from_fields.
template <class Row> class StoredRows : public Pipe<StoredRows<Row>> {
 public:
  using element                = Row;
  static constexpr bool stable = true;

  explicit StoredRows(RowTable<Row> rows) : rows_{std::move(rows)} {}

  auto stream(std::size_t) const { return RowStream<Row>{rows_}; }
  std::optional<std::size_t> size() const { return rows_.rows; }

  void describe(std::vector<std::string>& lines) const {
    auto const begin = "rows " + std::to_string(rows_.rows) + " of ";
    if constexpr (is_sample<Row>)
      lines.push_back(begin + std::to_string(rows_.widths[0]) + " numbers and " + std::to_string(rows_.widths[1]) +
                      " targets");
    else lines.push_back(begin + detail::RowType<Row>::text());
    lines.push_back("sample of rows " + std::to_string(detail::sample_of(rows_)));
  }

 private:
  RowTable<Row> rows_;
};

/// Rows of two tensors in memory. See from_tensors.
template <class X, class Y> using Tensors = StoredRows<Sample<X, Y>>;

namespace detail {

template <class X, class Y> RowTable<Sample<X, Y>> as_rows(Span<X const> x, Span<Y const> y, std::size_t width) {
  CHORALE_EXPECTS(width > 0, "from_tensors: a row needs at least one number");
  CHORALE_EXPECTS(x.size() % width == 0,
                  "from_tensors: " + std::to_string(x.size()) + " numbers are not rows of " + std::to_string(width));
  auto const rows = x.size() / width;
  CHORALE_EXPECTS(rows > 0 ? y.size() % rows == 0 : y.empty(), "from_tensors: " + std::to_string(y.size()) +
                                                                   " targets cannot be dealt out to " +
                                                                   std::to_string(rows) + " rows");
  return {.all = {x, y}, .rows = rows, .widths = {width, rows > 0 ? y.size() / rows : 0}};
}

}  // namespace detail

/// Rows from two vectors, which the dataset then owns.
///
///   auto train = data::from_tensors(x, y, 784).shuffle(1'000).batch(64);
///
/// x       (B, width) numbers; y (B, targets): a label for each row, or targets of any width
/// width   numbers of x in a row; B and the targets of a row follow from it
/// throws  BadArgument when x or y is not a whole number of rows
template <class X, class Y> Tensors<X, Y> from_tensors(std::vector<X> x, std::vector<Y> y, std::size_t width) {
  auto owner = std::make_shared<RowVectors<X, Y> const>(RowVectors<X, Y>{std::move(x), std::move(y)});
  auto rows  = detail::as_rows(Span<X const>{owner->x}, Span<Y const>{owner->y}, width);
  rows.owner = std::move(owner);
  return Tensors<X, Y>{std::move(rows)};
}

/// Rows that the caller owns: they must exist, unchanged, as long as the dataset and its streams.
template <class X, class Y> auto from_tensors(Span<X> x, Span<Y> y, std::size_t width) {
  using Dataset = Tensors<std::remove_const_t<X>, std::remove_const_t<Y>>;
  return Dataset{detail::as_rows(Span<X const>{x}, Span<Y const>{y}, width)};
}

namespace detail {

/// The numbers of one field in all rows.
template <IsField F> class FieldColumn {
  using T = typename F::element_type;

 public:
  explicit FieldColumn(std::vector<T> numbers) : numbers_{std::move(numbers)} { view(numbers_); }
  explicit FieldColumn(Span<T const> numbers) { view(numbers); }
  explicit FieldColumn(Span<T> numbers) { view(numbers); }

  /// Labels of another integer type.
  template <std::integral Label> requires(std::is_same_v<T, int>)
  explicit FieldColumn(std::vector<Label> const& labels) : numbers_(labels.size()) {
    std::transform(labels.begin(), labels.end(), numbers_.begin(), int_label<Label>);
    view(numbers_);
  }

  /// Rows of any length: vectors, or texts for a field of bytes.
  template <class Part> requires requires(Part const& part) { part.begin(), part.end(), part.size(); }
  explicit FieldColumn(std::vector<Part> const& rows) : rows_{rows.size()} {
    auto all = std::size_t{0};
    for (auto const& row : rows) all += row.size();
    numbers_.reserve(all);
    for (auto const& row : rows) {
      chorale::detail::expect_size<F>(ends_.size(), row.size());
      for (auto const value : row) numbers_.push_back(static_cast<T>(value));
      ends_.push_back(numbers_.size());
    }
    all_ = numbers_;
  }

  std::size_t rows() const { return rows_; }
  Span<T const> all() const { return all_; }
  Span<std::size_t const> ends() const { return ends_; }

 private:
  void view(Span<T const> numbers) {
    if constexpr (!F::is_ragged) {  // check_columns() refuses it
      CHORALE_EXPECTS(numbers.size() % F::size == 0, "from_fields: " + std::to_string(numbers.size()) +
                                                         " numbers for field " + type_name<F>() + " are not rows of " +
                                                         std::to_string(F::size));
      rows_ = numbers.size() / F::size;
      all_  = numbers;
    }
  }

  std::vector<T> numbers_;
  std::vector<std::size_t> ends_;  // of the rows, if the field is ragged
  Span<T const> all_;
  std::size_t rows_ = 0;
};

/// A column of rows of any length.
template <class Column>
concept ColumnOfParts = requires(typename Column::value_type const& part) { part.begin(), part.end(), part.size(); };

/// Refuses the column of one field. Returns false then.
template <class F, class Column> constexpr bool check_column() {
  constexpr bool fits = !F::is_ragged || ColumnOfParts<Column>;
  static_assert(fits,
                "chorale: from_fields takes a vector of vectors for a ragged field, or a vector of std::string "
                "for a field of bytes");
  return fits && chorale::detail::check_ragged<F>();
}
/// Refuses columns that are not one for each field of a row. Returns false then.
template <class... F, class... Column> constexpr bool check_columns(std::tuple<Column...> const*) {
  if constexpr (chorale::detail::check_fields<F...>()) {
    constexpr bool as_many = sizeof...(F) == sizeof...(Column);
    static_assert(as_many, "chorale: from_fields<...> takes one vector for each field");
    if constexpr (as_many) return (check_column<F, Column>() && ...);
  }
  return false;
}
template <class... F, class... Columns> auto rows_of_columns(Columns&... columns) {
  using All  = std::tuple<detail::FieldColumn<F>...>;
  auto owner = std::make_shared<All const>(detail::FieldColumn<F>{std::move(columns)}...);
  auto rows  = RowTable<Row<F...>>{};
  rows.rows  = std::get<0>(*owner).rows();
  detail::for_each_index<sizeof...(F)>([&](auto i) {
    using G            = std::tuple_element_t<i, std::tuple<F...>>;
    auto const& column = std::get<i>(*owner);
    CHORALE_EXPECTS(column.rows() == rows.rows, "from_fields: field " + type_name<G>() + " has " +
                                                    std::to_string(column.rows()) + " rows, but the first field has " +
                                                    std::to_string(rows.rows));
    std::get<i>(rows.all.fields()) = column.all();
    rows.widths[i]                 = G::size;
    if constexpr (RowTable<Row<F...>>::is_ragged) rows.ends[i] = column.ends();
  });
  rows.owner = std::move(owner);
  return StoredRows<Row<F...>>{std::move(rows)};
}

}  // namespace detail

/// Rows of named fields from one vector for each, which the dataset then owns.
///
///   auto train = data::from_fields<Title, Body, Priority>(titles, bodies, priorities).shuffle(1'000).batch(64);
///
/// columns   for a field of fixed shape a std::vector of (B, F) numbers, or a Span of them, which must exist,
///           unchanged, as long as the dataset and its streams; for a ragged one B vectors; for bytes also B
///           std::strings; for a field of int also a vector of other integers, such as std::int64_t
/// cost      vectors of numbers are moved, vectors of vectors are copied once; rows and shuffled rows are views
/// throws    BadArgument when numbers are not whole rows, or columns differ in their number of rows
template <class... F, class... Columns> auto from_fields(Columns... columns) {
  constexpr std::tuple<Columns...> const* of = nullptr;
  if constexpr (detail::check_columns<F...>(of)) return detail::rows_of_columns<F...>(columns...);
  else return RefusedData{};
}

}  // namespace chorale::data
