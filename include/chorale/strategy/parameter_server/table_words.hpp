// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/connections.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/tensor/row_gradients.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// Rows of tables that a pull has written.
struct PulledRows {
  std::uint64_t number = 0;                      // of the pull, from 1 on
  bool all             = false;                  // any row may be another one
  std::vector<std::vector<std::uint32_t>> rows;  // of each table

  /// Copies what pulls have written to a flat buffer to another one.
  ///
  /// seen    number of the pull after which they were equal; becomes the number of the last one
  void copy(Span<RowTable const> tables, float const* from, Span<float> to, std::uint64_t& seen) const {
    auto const only_last = number <= std::exchange(seen, number) + 1;
    if (all || tables.empty() || !only_last) {
      std::memcpy(to.data(), from, to.size_bytes());
      return;
    }
    std::memcpy(to.data(), from, tables.front().offset * sizeof(float));
    for (std::size_t t = 0; t < tables.size(); ++t)
      for (auto const row : rows[t]) {
        auto const at = tables[t].offset + row * tables[t].width;
        std::memcpy(to.data() + at, from + at, tables[t].width * sizeof(float));
      }
  }
};

/// Handles a client's rows of tables: deals the rows of a push out to servers, and writes the rows of a pull. Call
/// describes the words.
template <Endpoint E> class TableWords {
 public:
  explicit TableWords(ShardLayout const& shards) : shards_{&shards} { pulled_.rows.resize(shards.tables().size()); }

  /// throws  BadArgument when a push has rows of another number of tables
  void expect(std::size_t tables) const {
    CHORALE_EXPECTS(tables == shards_->tables().size(),
                    std::to_string(tables) + " tables have gradients that are rows, and the servers have " +
                        std::to_string(shards_->tables().size()));
  }

  /// Lists, for each server, the rows of all tables that it has.
  ///
  /// throws  BadArgument when no server has a row
  void deal_out(ServerConnections<E>& links, Span<RowsView const> tables) {
    for (auto& link : links) link.words_out.clear();
    for (std::size_t t = 0; t < tables.size(); ++t)
      if (links.size() == 1) append(links[0].words_out, tables[t], shards_->tables()[t].width);
      else deal_out(links, shards_->tables()[t], tables[t]);
  }

  PulledRows const& pulled() const { return pulled_; }
  void begin_pull() {
    ++pulled_.number;
    pulled_.all = false;
    for (auto& rows : pulled_.rows) rows.clear();
  }

  /// Writes the rows of a reply to the flat buffer of the variables.
  ///
  /// throws  Disagreement when they are not rows of the tables
  void write(ServerConnection<E> const& link, Span<float> into) {
    if (link.brings_all()) pulled_.all = true;
    auto const words = link.words_in();
    if (words.empty()) return;
    auto at = std::size_t{0};
    for (std::size_t t = 0; t < shards_->tables().size(); ++t) {
      auto const& table = shards_->tables()[t];
      auto const n      = at < words.size() ? std::size_t{words[at]} : 0;
      if (at + 1 + n * (1 + table.width) > words.size()) refuse(link, t);
      auto const rows   = words.subspan(at + 1, n);
      auto const* value = words.data() + at + 1 + n;
      for (auto const row : rows) {
        if (row >= table.rows) refuse(link, t);
        std::memcpy(into.data() + table.offset + row * table.width, value, table.width * sizeof(float));
        value += table.width;
      }
      pulled_.rows[t].insert(pulled_.rows[t].end(), rows.begin(), rows.end());
      at += 1 + n * (1 + table.width);
    }
  }

 private:
  static constexpr auto none = std::numeric_limits<std::uint32_t>::max();

  static void append(std::vector<std::uint32_t>& words, RowsView const& view, std::size_t width) {
    auto const n = words.size(), rows = view.rows.size();
    words.resize(n + 2 + 2 * rows + view.values.size());
    auto* const to = words.data() + n;
    to[0]          = static_cast<std::uint32_t>(rows);
    to[1]          = static_cast<std::uint32_t>(view.values.size() / width);
    std::ranges::copy(view.rows, to + 2);
    std::ranges::copy(view.vectors, to + 2 + rows);
    if (!view.values.empty()) std::memcpy(to + 2 + 2 * rows, view.values.data(), view.values.size_bytes());
  }

  void deal_out(ServerConnections<E>& links, RowTable const& table, RowsView const& view) {
    auto const vectors = view.values.size() / table.width;
    auto found         = ShardLayout::Found{};
    lists_.resize(links.size());
    for (auto& list : lists_) list.clear();
    numbers_.assign(links.size() * vectors, none);
    for (std::size_t i = 0; i < view.rows.size(); ++i) {
      auto const row   = view.rows[i];
      auto const first = table.offset + row * table.width;
      auto const* home = row < table.rows ? shards_->home_of({first, first + table.width}, found) : nullptr;
      CHORALE_EXPECTS(home != nullptr, "row " + std::to_string(row) + " is not among the " +
                                           std::to_string(table.rows) + " rows of the table");
      auto const server = static_cast<std::size_t>(home->server);
      auto& list        = lists_[server];
      auto& number      = numbers_[server * vectors + view.vectors[i]];
      if (number == none) {  // the first row there that has this vector
        number            = static_cast<std::uint32_t>(list.values.size() / table.width);
        auto const vector = view.values.subspan(view.vectors[i] * table.width, table.width);
        list.values.insert(list.values.end(), vector.begin(), vector.end());
      }
      list.rows.push_back(row);
      list.vectors.push_back(number);
    }
    for (std::size_t s = 0; s < links.size(); ++s) append(links[s].words_out, lists_[s].view(), table.width);
  }

  [[noreturn]] static void refuse(ServerConnection<E> const& link, std::size_t t) {
    throw Disagreement{
        Fault::model_mismatch,
        "server " + std::to_string(link.server()) + " sends what are no rows of table " + std::to_string(t) + ".",
        "the same model, shards and options on all workers and servers."};
  }

  ShardLayout const* shards_;
  PulledRows pulled_;
  std::vector<RowList> lists_;          // of each server, of one table
  std::vector<std::uint32_t> numbers_;  // (servers, vectors): index in its list
};

}  // namespace chorale::parameter_server
