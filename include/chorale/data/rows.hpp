// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/crc32c.hpp>
#include <chorale/data/pipe.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace chorale::data {

/// Rows of one width, one after another in memory.
template <class X, class Y>
struct Rows {
  std::vector<X> x;                                        // (B, width)
  std::vector<Y> y;                                        // (B, targets)
};

/// A view of rows of one width, and the owner of their memory, if any.
template <class X, class Y>
struct RowsView {
  Span<X const> x;                                         // (B, width)
  Span<Y const> y;                                         // (B, targets)
  std::size_t width = 0, targets = 0, rows = 0;
  std::shared_ptr<Rows<X, Y> const> owner{};

  Sample<X, Y> operator[](std::size_t i) const {
    return {x.subspan(i * width, width), y.subspan(i * targets, targets)};
  }
};

/// The stream of a RowsView: its rows, in order.
template <class X, class Y>
class RowStream {
 public:
  explicit RowStream(RowsView<X, Y> rows) : rows_{std::move(rows)} {}

  bool next(Sample<X, Y>& out) {
    if (at_ == rows_.rows) return false;
    out = rows_[at_++];
    return true;
  }

 private:
  RowsView<X, Y> rows_;
  std::size_t at_ = 0;
};

namespace detail {

/// A checksum of up to 256 rows, or 1 MiB of them, spread evenly from the first one to the last one.
template <class X, class Y>
std::uint32_t sample_of(RowsView<X, Y> const& rows) {
  static_assert(std::is_trivially_copyable_v<X> && std::is_trivially_copyable_v<Y>);
  auto const row_bytes = std::max<std::size_t>(rows.width * sizeof(X) + rows.targets * sizeof(Y), 1);
  auto const n         = std::min(rows.rows, std::clamp<std::size_t>((std::size_t{1} << 20) / row_bytes, 2, 256));
  auto sum             = std::uint32_t{0};
  for (std::size_t i = 0; i < n; ++i) {
    auto const row = rows[n == 1 ? 0 : i * (rows.rows - 1) / (n - 1)];
    sum            = crc32c(std::as_bytes(row.y), crc32c(std::as_bytes(row.x), sum));
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

}  // namespace chorale::data
