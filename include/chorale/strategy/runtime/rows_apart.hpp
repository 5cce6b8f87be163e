// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/pieces.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Rows of tables that a replica which learns apart has changed since all replicas had the same, with the values that
/// all had. So replicas bring together these rows, and not the tables.
///
///   apart.keep(variables, gradients);       before each update, which changes those rows
///   replica.average(variables, gradients, weight, apart);
///
/// keeps   memory for the rows that were changed, and 8 bytes for each row of a table; of each model, by Gradients::owner
class RowsApart {
 public:
  /// Keeps the values of the rows that have a gradient, unless they are kept already.
  void keep(Variables const& variables, Gradients const& gradients) {
    auto const kept = of(gradients);
    for (std::size_t t = 0; t < kept.size(); ++t)
      for (auto const row : gradients.tables[t].rows()) keep(variables, kept[t], row);
  }

  /// Moves the changes of the kept rows, times `weight`, to the gradients of the tables: the variables are then what all
  /// replicas had.
  void take_changes(Variables const& variables, Gradients const& gradients, float weight) {
    auto const kept = of(gradients);
    for (std::size_t t = 0; t < kept.size(); ++t) {
      auto const& before = kept[t];
      auto& changes      = gradients.tables[t];
      changes.clear();
      vector_.resize(before.width());
      for (std::size_t i = 0; i < before.size(); ++i) {
        auto const now = row_of(variables, before, before.rows()[i]);
        for (std::size_t c = 0; c < now.size(); ++c) vector_[c] = weight * (now[c] - before[i][c]);
        changes.add(before.rows()[i], vector_.data());
        std::ranges::copy(before[i], now.begin());
      }
      kept[t].clear();
    }
  }

  /// Sends the kept rows to a peer, and replaces all rows that either has kept by the mean of both. Both ranks call it.
  ///
  /// throws  Disagreement when the peer sends a row that is not in the table
  void meet(auto& replica, Rank peer, Variables const& variables, Gradients const& gradients) {
    auto const kept = of(gradients);
    for (std::size_t t = 0; t < kept.size(); ++t) {
      auto& before     = kept[t];
      auto const width = before.width();
      auto const mine  = std::array{static_cast<std::uint64_t>(before.size())};
      auto theirs      = std::array<std::uint64_t, 1>{};
      replica.exchange(peer, std::as_bytes(Span<std::uint64_t const>{mine}),
                       std::as_writable_bytes(Span<std::uint64_t>{theirs}));
      auto const n = static_cast<std::size_t>(theirs[0]), m = before.size();
      auto const name = std::string_view{variables.plan[before.variable()].name};
      if (n > before.table_rows()) refuse(sentence("rank {} announces {} rows", peer, n), name, before);
      sent_.resize(m * width);
      for (std::size_t i = 0; i < m; ++i)
        std::copy_n(row_of(variables, before, before.rows()[i]).data(), width, sent_.data() + i * width);
      auto const swap = [&]<class T>(Span<T const> out, Span<T> in) {
        replica.exchange(peer, std::as_bytes(out), std::as_writable_bytes(in));
      };
      exchange_in_pieces(before.rows(), rows_, n, swap);
      exchange_in_pieces(Span<float const>{sent_}, values_, n * width, swap);
      for (auto const row : rows_)
        if (row >= before.table_rows()) refuse(sentence("rank {} sends row {}", peer, row), name, before);
      auto& met = gradients.tables[t];  // free memory
      met.clear();
      for (std::size_t i = 0; i < n; ++i) met.add(rows_[i], values_.data() + i * width);
      for (std::size_t i = 0; i < m; ++i) {
        auto const row = before.rows()[i];
        if (met.find(row) == met.size()) move_to_mean(variables, before, row, before[i]);  // the peer has what all had
      }
      for (std::size_t i = 0; i < n; ++i) {
        keep(variables, before, rows_[i]);
        move_to_mean(variables, before, rows_[i], met[met.find(rows_[i])]);
      }
    }
  }

 private:
  struct OfModel {
    std::uint64_t owner;
    std::vector<RowGradients> kept;  // rows, and the values that all had
  };

  [[noreturn]] static void refuse(std::string const& what, std::string_view table, RowGradients const& of) {
    throw Disagreement{Fault::collective_mismatch,
                       sentence("{} of {}, which has {} rows.", what, table, of.table_rows()),
                       "the same model on every rank, and a look at the memory of that host."};
  }

  Span<RowGradients> of(Gradients const& gradients) {
    auto found = std::ranges::find(models_, gradients.owner, &OfModel::owner);
    if (found == models_.end()) {
      auto tables = std::vector<RowGradients>{};
      for (auto const& table : gradients.tables)
        tables.emplace_back(table.variable(), table.table_rows(), table.width());
      models_.push_back({gradients.owner, std::move(tables)});
      found = models_.end() - 1;
    }
    return found->kept;
  }

  static Span<float> row_of(Variables const& variables, RowGradients const& table, std::size_t row) {
    return variables.values.subspan(variables.plan[table.variable()].offset + row * table.width(), table.width());
  }
  static void keep(Variables const& variables, RowGradients& kept, std::size_t row) {
    if (kept.find(row) == kept.size()) kept.add(row, row_of(variables, kept, row).data());
  }
  static void move_to_mean(Variables const& variables, RowGradients const& table, std::size_t row,
                           Span<float const> x) {
    auto const mine = row_of(variables, table, row);
    for (std::size_t c = 0; c < mine.size(); ++c) mine[c] = (mine[c] + x[c]) * 0.5F;
  }

  std::vector<OfModel> models_;
  std::vector<float> vector_, sent_, values_;
  std::vector<std::uint32_t> rows_;
};

}  // namespace chorale
