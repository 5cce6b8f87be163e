// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Some rows of a large table, such as the gradient of an embedding.
///
/// rows      row numbers; a row may occur several times
/// values    (rows, width)
struct SparseRows {
  std::vector<std::uint32_t> rows;
  std::vector<float> values;
  std::size_t width = 1;

  std::size_t bytes() const { return rows.size() * (sizeof(std::uint32_t) + width * sizeof(float)); }
};

/// Collects some rows of a large table from all ranks, step after step. Row rows[i] has the vector vectors[i] of values:
/// several rows may have one.
///
/// keeps   memory for as many rows as a step has brought so far
template <Endpoint E>
class RowGather {
 public:
  /// Collects the rows of all ranks: those of rank 0 in their order, then those of rank 1, .. Every rank calls it.
  ///
  /// values  (number of vectors, width)
  /// cost    3 ring all-gathers and one of 16 bytes a rank: of n bytes in all, a rank sends those of up to P-1 ranks
  /// throws  BadArgument when values are not vectors of `width`, or a row has no vector; PeerLost
  void gather(E& at, Span<std::uint32_t const> rows, Span<std::uint32_t const> vectors, Span<float const> values,
              std::size_t width, Tag tag, CallSite where = CallSite::here()) {
    CHORALE_EXPECTS(width > 0 && values.size() % width == 0 && rows.size() == vectors.size(),
                    std::to_string(values.size()) + " values are not vectors of " + std::to_string(width) + " for " +
                        std::to_string(rows.size()) + " rows");
    auto const P  = static_cast<std::size_t>(at.size());
    auto const my = std::array<std::uint64_t, 2>{rows.size(), values.size()};
    counts_.resize(2 * P), rows_of_.resize(P), values_of_.resize(P);
    two_of_.assign(P, 2);
    all_gather(at, Span<std::uint64_t const>{my}, Span<std::uint64_t>{counts_}, two_of_, tag, where);
    for (std::size_t r = 0; r < P; ++r) rows_of_[r] = counts_[2 * r], values_of_[r] = counts_[2 * r + 1];
    rows_.resize(std::accumulate(rows_of_.begin(), rows_of_.end(), std::size_t{0}));
    vectors_.resize(rows_.size());
    values_.resize(std::accumulate(values_of_.begin(), values_of_.end(), std::size_t{0}));
    all_gather(at, rows, Span<std::uint32_t>{rows_}, rows_of_, tag, where);
    all_gather(at, vectors, Span<std::uint32_t>{vectors_}, rows_of_, tag, where);
    all_gather(at, values, Span<float>{values_}, values_of_, tag, where);
    auto first = std::size_t{0};                                           // vectors of the ranks before
    for (std::size_t r = 0, i = 0; r < P; first += values_of_[r++] / width)
      for (auto const end = i + rows_of_[r]; i < end; ++i) vectors_[i] += static_cast<std::uint32_t>(first);
  }

  Span<std::uint32_t const> rows() const { return rows_; }
  Span<std::uint32_t const> vectors() const { return vectors_; }
  Span<float const> values() const { return values_; }                     // (number of vectors, width)

 private:
  std::vector<std::uint64_t> counts_;                                      // rows and values of each rank
  std::vector<std::size_t> two_of_, rows_of_, values_of_;
  std::vector<std::uint32_t> rows_, vectors_;
  std::vector<float> values_;
};

/// Returns the sum of the rows of all ranks: each row once, ascending. Bytes sent depend on the rows, not the table.
///
/// cost    2 ring all-gathers and one of 8 bytes a rank: of n rows in all, a rank sends those of up to P-1 ranks
/// order   rank 0's rows in their order, then rank 1's, ..: the same bits on all ranks
/// throws  BadArgument when values are not rows of `width`, or a row is not in the table; PeerLost
template <Endpoint E>
SparseRows all_reduce_rows(E& at, SparseRows const& mine, std::size_t table_rows, Tag tag = {},
                           CallSite where = CallSite::here()) {
  for (auto const row : mine.rows)
    CHORALE_EXPECTS(row < table_rows, "row " + std::to_string(row) + " is not in a table of " +
                                          std::to_string(table_rows) + " rows");

  CHORALE_EXPECTS(mine.width > 0 && mine.values.size() == mine.rows.size() * mine.width,
                  std::to_string(mine.values.size()) + " values are not " + std::to_string(mine.rows.size()) +
                      " rows of " + std::to_string(mine.width));
  auto each = std::vector<std::uint32_t>(mine.rows.size());                // each row has its own vector
  std::iota(each.begin(), each.end(), 0U);
  auto all = RowGather<E>{};
  all.gather(at, mine.rows, each, mine.values, mine.width, tag, where);
  auto const rows   = all.rows();
  auto const values = all.values();
  auto const total  = rows.size();

  auto order = std::vector<std::size_t>(total);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rows[a] < rows[b]; });
  auto sum = SparseRows{.rows = {}, .values = {}, .width = mine.width};
  for (auto const i : order) {
    auto const* const from = values.data() + i * mine.width;
    if (sum.rows.empty() || sum.rows.back() != rows[i]) {
      sum.rows.push_back(rows[i]);
      sum.values.insert(sum.values.end(), from, from + mine.width);
    } else {
      auto* const to = sum.values.data() + (sum.rows.size() - 1) * mine.width;
      for (std::size_t c = 0; c < mine.width; ++c) to[c] += from[c];
    }
  }
  return sum;
}

}  // namespace chorale
