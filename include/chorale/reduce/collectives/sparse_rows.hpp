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

/// Returns the sum of the rows of all ranks: each row once, ascending. Bytes sent depend on the rows, not the table.
///
/// cost    2 ring all-gathers and one of 8 bytes a rank: of n rows in all, a rank sends those of up to P-1 ranks
/// order   rank 0's rows in their order, then rank 1's, ..: the same bits on all ranks
/// throws  BadArgument when values are not rows of `width`, or a row is not in the table; PeerLost
template <Endpoint E>
SparseRows all_reduce_rows(E& at, SparseRows const& mine, std::size_t table_rows, Tag tag = {},
                           CallSite where = CallSite::here()) {
  CHORALE_EXPECTS(mine.width > 0 && mine.values.size() == mine.rows.size() * mine.width,
                  std::to_string(mine.values.size()) + " values are not " + std::to_string(mine.rows.size()) +
                      " rows of " + std::to_string(mine.width));
  for (auto const row : mine.rows)
    CHORALE_EXPECTS(row < table_rows, "row " + std::to_string(row) + " is not in a table of " +
                                          std::to_string(table_rows) + " rows");

  auto const P  = static_cast<std::size_t>(at.size());
  auto counts   = std::vector<std::uint64_t>(P);                      // rows of each rank
  auto const my = std::uint64_t{mine.rows.size()};
  all_gather(at, Span<std::uint64_t const>{&my, 1}, Span<std::uint64_t>{counts}, tag, where);

  auto rows_of = std::vector<std::size_t>(counts.begin(), counts.end()), values_of = rows_of;
  for (auto& n : values_of) n *= mine.width;
  auto const total = std::accumulate(rows_of.begin(), rows_of.end(), std::size_t{0});
  auto rows        = std::vector<std::uint32_t>(total);
  auto values      = std::vector<float>(total * mine.width);          // (total, width)
  all_gather(at, Span<std::uint32_t const>{mine.rows}, Span<std::uint32_t>{rows}, rows_of, tag, where);
  all_gather(at, Span<float const>{mine.values}, Span<float>{values}, values_of, tag, where);

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
