// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
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

/// Collects some rows of a large table from all ranks, step after step.
///
/// keeps   memory for as many rows as a step has brought so far
template <Endpoint E>
class RowGather {
 public:
  /// Collects the rows of all ranks: those of rank 0 in their order, then those of rank 1, .. Every rank calls it.
  ///
  /// values  (rows, width)
  /// cost    2 ring all-gathers and one of 8 bytes a rank: of n rows in all, a rank sends those of up to P-1 ranks
  /// throws  BadArgument when values are not rows of `width`; PeerLost
  void gather(E& at, Span<std::uint32_t const> rows, Span<float const> values, std::size_t width, Tag tag,
              CallSite where = CallSite::here()) {
    CHORALE_EXPECTS(width > 0 && values.size() == rows.size() * width,
                    std::to_string(values.size()) + " values are not " + std::to_string(rows.size()) + " rows of " +
                        std::to_string(width));
    auto const P  = static_cast<std::size_t>(at.size());
    auto const my = std::uint64_t{rows.size()};
    counts_.resize(P), rows_of_.resize(P), values_of_.resize(P);
    all_gather(at, Span<std::uint64_t const>{&my, 1}, Span<std::uint64_t>{counts_}, tag, where);
    for (std::size_t r = 0; r < P; ++r) {
      rows_of_[r]   = static_cast<std::size_t>(counts_[r]);
      values_of_[r] = rows_of_[r] * width;
    }
    auto const total = std::accumulate(rows_of_.begin(), rows_of_.end(), std::size_t{0});
    rows_.resize(total), values_.resize(total * width);
    all_gather(at, rows, Span<std::uint32_t>{rows_}, rows_of_, tag, where);
    all_gather(at, values, Span<float>{values_}, values_of_, tag, where);
  }

  Span<std::uint32_t const> rows() const { return rows_; }
  Span<float const> values() const { return values_; }                     // (rows, width)

 private:
  std::vector<std::uint64_t> counts_;                                      // rows of each rank
  std::vector<std::size_t> rows_of_, values_of_;
  std::vector<std::uint32_t> rows_;
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

  auto all = RowGather<E>{};
  all.gather(at, mine.rows, mine.values, mine.width, tag, where);
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
