// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/pieces.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/reduce/collectives/gather_scatter.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
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

/// A table from which ranks send some rows; its name is for errors.
struct SparseTable {
  std::size_t rows = 0, width = 1;
  std::string_view name = "the table";
};

/// Collects some rows of a large table from all ranks, step after step. Row rows[i] has the vector vectors[i] of values:
/// several rows may have one.
///
/// keeps   memory for as many rows as a step has brought so far
template <Endpoint E> class RowGather {
 public:
  /// Collects the rows of all ranks: rank 0's in their order, then rank 1's, .. Every rank calls it.
  ///
  /// values  (number of vectors, table.width)
  /// cost    3 ring all-gathers and one of 16 bytes a rank: of n bytes in all, a rank sends up to P-1 ranks' bytes.
  ///         A step with more rows than all before it goes in pieces
  /// throws  BadArgument when values are not vectors, or a row has no vector; Disagreement, on all ranks alike, when a
  ///         rank sends a row that is not in the table, or a vector that it does not have; PeerLost
  void gather(E& at, Span<std::uint32_t const> rows, Span<std::uint32_t const> vectors, Span<float const> values,
              SparseTable const& table, Tag tag, CallSite where = CallSite::here()) {
    auto const width = table.width;
    CHORALE_EXPECTS(width > 0 && values.size() % width == 0 && rows.size() == vectors.size(),
                    std::to_string(values.size()) + " values are not vectors of " + std::to_string(width) + " for " +
                        std::to_string(rows.size()) + " rows");
    auto const P  = static_cast<std::size_t>(at.size());
    auto const my = std::array<std::uint64_t, 2>{rows.size(), values.size()};
    counts_.resize(2 * P), rows_of_.resize(P), values_of_.resize(P);
    two_of_.assign(P, 2);
    all_gather(at, Span<std::uint64_t const>{my}, Span<std::uint64_t>{counts_}, two_of_, tag, where);
    for (std::size_t r = 0; r < P; ++r) rows_of_[r] = counts_[2 * r], values_of_[r] = counts_[2 * r + 1];
    expect_counts(table);
    auto const collect = [&]<class T>(Span<T const> mine, std::vector<T>& all, Span<std::size_t const> of) {
      gather_in_pieces(static_cast<std::size_t>(at.rank()), mine, all, of,
                       [&](auto part, auto whole, auto counts) { all_gather(at, part, whole, counts, tag, where); });
    };
    collect(rows, rows_, rows_of_);
    collect(vectors, vectors_, rows_of_);
    collect(values, values_, values_of_);
    auto first = std::size_t{0};  // vectors of the ranks before
    for (std::size_t r = 0, i = 0; r < P; first += values_of_[r++] / width) {
      auto const end = i + rows_of_[r];
      expect_rows(r, this->rows().subspan(i, rows_of_[r]), this->vectors().subspan(i, rows_of_[r]), table);
      for (; i < end; ++i) vectors_[i] += static_cast<std::uint32_t>(first);
    }
  }

  Span<std::uint32_t const> rows() const { return Span<std::uint32_t const>{rows_}.first(all_rows_); }
  Span<std::uint32_t const> vectors() const { return Span<std::uint32_t const>{vectors_}.first(all_rows_); }
  Span<float const> values() const { return Span<float const>{values_}.first(all_values_); }  // (vectors, width)

 private:
  /// Checks what ranks have announced: whole vectors, and numbers of them that indices can have.
  void expect_counts(SparseTable const& table) {
    constexpr auto most = std::uint64_t{std::numeric_limits<std::uint32_t>::max()};
    auto rows = std::uint64_t{0}, vectors = std::uint64_t{0};
    for (std::size_t r = 0; r < rows_of_.size(); ++r) {
      auto const n = values_of_[r] / table.width;
      if (values_of_[r] % table.width != 0 || rows_of_[r] > most - rows || n > most - vectors)
        refuse(sentence("rank {} announces {} rows and {} values of {}, whose rows have {} values", r, rows_of_[r],
                        values_of_[r], table.name, table.width));
      rows += rows_of_[r], vectors += n;
    }
    all_rows_ = rows, all_values_ = vectors * table.width;
  }
  /// Checks the rows of a rank, and the vectors that they have.
  void expect_rows(std::size_t rank, Span<std::uint32_t const> rows, Span<std::uint32_t const> vectors,
                   SparseTable const& table) const {
    if (rows.empty()) return;
    auto const n   = values_of_[rank] / table.width;
    auto const row = std::ranges::max(rows), vector = std::ranges::max(vectors);
    if (row >= table.rows)
      refuse(sentence("rank {} sends row {} of {}, which has {} rows", rank, row, table.name, table.rows));
    if (vector >= n)
      refuse(
          sentence("rank {} sends a row of {} with vector {}, but has sent {} vectors", rank, table.name, vector, n));
  }
  [[noreturn]] static void refuse(std::string const& what) {
    throw Disagreement{Fault::collective_mismatch, what + ".",
                       "the same model on every rank, and a look at the memory of that host."};
  }

  std::vector<std::uint64_t> counts_;  // rows and values of each rank
  std::vector<std::size_t> two_of_, rows_of_, values_of_;
  std::vector<std::uint32_t> rows_, vectors_;
  std::vector<float> values_;
  std::size_t all_rows_ = 0, all_values_ = 0;  // of this step
};

/// Returns the sum of the rows of all ranks: each row once, ascending. Bytes sent depend on the rows, not the table.
///
/// cost    2 ring all-gathers and one of 8 bytes a rank: of n rows in all, a rank sends up to P-1 ranks' rows
/// order   rank 0's rows in their order, then rank 1's, ..: the same bits on all ranks
/// throws  BadArgument when values are not rows of `width`, or a row is not in the table; Disagreement when another
///         rank sends one that is not; PeerLost
template <Endpoint E>
SparseRows all_reduce_rows(E& at, SparseRows const& mine, std::size_t table_rows, Tag tag = {},
                           CallSite where = CallSite::here()) {
  for (auto const row : mine.rows)
    CHORALE_EXPECTS(row < table_rows,
                    "row " + std::to_string(row) + " is not in a table of " + std::to_string(table_rows) + " rows");

  CHORALE_EXPECTS(mine.width > 0 && mine.values.size() == mine.rows.size() * mine.width,
                  std::to_string(mine.values.size()) + " values are not " + std::to_string(mine.rows.size()) +
                      " rows of " + std::to_string(mine.width));
  auto each = std::vector<std::uint32_t>(mine.rows.size());  // each row has its own vector
  std::iota(each.begin(), each.end(), 0U);
  auto all = RowGather<E>{};
  all.gather(at, mine.rows, each, mine.values, {table_rows, mine.width}, tag, where);
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
