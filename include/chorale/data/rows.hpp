// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/core/error.hpp>
#include <chorale/data/elements.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale::data {

/// The x and the y of rows of one width, one after another in memory.
template <class X, class Y> struct RowVectors {
  std::vector<X> x;  // (B, width)
  std::vector<Y> y;  // (B, targets)
};

/// A view of rows that lie one after another, each field by itself, and the owner of their memory, if any.
template <class Row> struct RowTable {
  static constexpr std::size_t n  = detail::fields_of<Row>;
  static constexpr bool is_ragged = detail::RowType<Row>::is_ragged;

  Row all{};  // each field: (B, width)
  std::size_t rows = 0;
  std::array<std::size_t, n> widths{};                            // of each field; not used for ragged ones
  std::array<Span<std::size_t const>, is_ragged ? n : 0> ends{};  // of ragged fields: the end of each row
  std::shared_ptr<void const> owner{};

  Row operator[](std::size_t i) const {
    auto row    = Row{};
    auto&& to   = detail::fields(row);
    auto&& from = detail::fields(all);
    detail::for_each_index<n>([&](auto field) {
      auto begin = i * widths[field], width = widths[field];
      if constexpr (is_ragged) {
        if (!ends[field].empty()) begin = i == 0 ? 0 : ends[field][i - 1], width = ends[field][i] - begin;
      }
      std::get<field>(to) = std::get<field>(from).subspan(begin, width);
    });
    return row;
  }
};

/// The stream of a RowTable: its rows, in order.
template <class Row> class RowStream {
 public:
  explicit RowStream(RowTable<Row> rows) : rows_{std::move(rows)} {}

  bool next(Row& out) {
    if (at_ == rows_.rows) return false;
    out = rows_[at_++];
    return true;
  }

 private:
  RowTable<Row> rows_;
  std::size_t at_ = 0;
};

namespace detail {

/// A checksum of up to 256 rows, or 1 MiB of them, spread evenly from the first one to the last one.
template <class Row> std::uint32_t sample_of(RowTable<Row> const& rows) {
  auto const row_bytes = std::max<std::size_t>(rows.rows == 0 ? 0 : bytes_of(rows.all) / rows.rows, 1);
  auto const n         = std::min(rows.rows, std::clamp<std::size_t>((std::size_t{1} << 20) / row_bytes, 2, 256));
  auto sum             = std::uint32_t{0};
  for (std::size_t i = 0; i < n; ++i) {
    auto const row = rows[n == 1 ? 0 : i * (rows.rows - 1) / (n - 1)];
    std::apply([&](auto const&... spans) { ((sum = crc32c(std::as_bytes(spans), sum)), ...); }, fields(row));
  }
  return sum;
}

}  // namespace detail

/// Throws BadArgument when row number `row` is not as wide as the rows before it.
template <class X, class Y>
void expect_widths(std::size_t row, Sample<X, Y> const& got, std::size_t width, std::size_t targets) {
  auto const text = [](std::size_t a, std::size_t b) {
    return std::to_string(a) + " numbers and " + std::to_string(b) + " targets";
  };
  if (got.x.size() != width || got.y.size() != targets)
    throw BadArgument{"row " + std::to_string(row) + " has " + text(got.x.size(), got.y.size()) +
                          ", but the rows before it have " + text(width, targets) + ".",
                      "a map that makes all rows of one width."};
}

/// The number of elements that each field of a row has: for Samples the numbers of the first row, for named fields
/// their shapes.
template <class Row> class Widths {
 public:
  std::size_t operator[](std::size_t field) const { return each_[field]; }
  auto const& each() const { return each_; }

  /// Takes the widths of the first row.
  void begin(Row const& row) {
    each_ = std::apply([](auto const&... spans) { return std::array{spans.size()...}; }, detail::fields(row));
  }

  /// Throws BadArgument when row number `row` has other widths.
  void expect(std::size_t row, Row const& got) const {
    if constexpr (is_sample<Row>) expect_widths(row, got, each_[0], each_[1]);
    else detail::RowType<Row>::expect_shape(row, got);
  }

 private:
  std::array<std::size_t, detail::fields_of<Row>> each_{};
};

/// Rows that are kept one after another in memory, each field by itself.
///
/// throws  BadArgument when a row has another width than the first, or does not fit its fields
template <class Row> class KeptRows {
 public:
  /// Appends a row.
  ///
  /// expected   rows in all, for the first one to make room for; 0: unknown
  void add(Row const& row, std::size_t expected) {
    if (rows_ == 0) widths_.begin(row);
    widths_.expect(rows_, row);
    auto&& spans = detail::fields(row);
    detail::for_each_index<n>([&](auto field) {
      auto const& span = std::get<field>(spans);
      auto& to         = std::get<field>(numbers_);
      if (rows_ == 0) to.reserve(expected * span.size());
      to.insert(to.end(), span.begin(), span.end());
      if constexpr (RowTable<Row>::is_ragged)
        if (detail::RowType<Row>::ragged[field]) ends_[field].push_back(to.size());
    });
    ++rows_;
  }

  /// A view of all rows, valid as long as this object stays where it is and gets no further row.
  RowTable<Row> view() const {
    auto table   = RowTable<Row>{};
    table.rows   = rows_;
    table.widths = widths_.each();
    auto&& spans = detail::fields(table.all);
    detail::for_each_index<n>([&](auto field) { std::get<field>(spans) = std::get<field>(numbers_); });
    if constexpr (RowTable<Row>::is_ragged) std::copy(ends_.begin(), ends_.end(), table.ends.begin());
    return table;
  }

 private:
  static constexpr std::size_t n = detail::fields_of<Row>;

  std::size_t rows_ = 0;
  Widths<Row> widths_;
  detail::OfNumbers<detail::Vectors, Row> numbers_;
  std::array<std::vector<std::size_t>, RowTable<Row>::is_ragged ? n : 0> ends_;
};

}  // namespace chorale::data
