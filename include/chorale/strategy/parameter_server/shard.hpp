// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/device/cpu.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/strategy/parameter_server/changed_rows.hpp>
#include <chorale/strategy/parameter_server/row_sums.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>
#include <chorale/tensor/cpu/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// State of one server: a shard of the variables, the slots of its optimizer, and their version.
///
/// keeps   every change is one whole version: a reader of a snapshot() sees one version, however long it takes
/// cost    values, slots, and one more copy of the values while a snapshot of an older version is read; 20 bytes for each
///         row of a table whose gradient is rows
template <optim::Optimizer O> class Shard {
 public:
  using Snapshot = std::shared_ptr<Buffer>;

  /// initial   the flat buffer of all variables
  /// memory    for values, as far as it suffices
  ///
  /// throws    BadArgument when the buffer is too small, an option is out of range, or gradients are to be clipped by a norm that no server knows
  Shard(O rule, ShardLayout const& shards, int server, Span<float const> initial, Bytes memory = {})
      : rule_{std::move(rule)}, shards_{shards}, server_{server}, size_{shards.elements(server)} {
    auto const bytes = (size_ * sizeof(float) + 63) / 64 * 64;
    for (; memory.size() >= bytes && buffers_.size() < 2; memory = memory.subspan(bytes))
      buffers_.push_back(std::make_shared<Buffer>(memory.first(bytes)));
    live_ = unread();
    shards.expect_in(initial.size());
    optim::check_options(rule_);
    CHORALE_EXPECTS(rule_.global_clipnorm <= 0 || shards.servers() == 1,
                    "global_clipnorm needs the norm of all gradients, but each of " + std::to_string(shards.servers()) +
                        " servers has its shard only: use one server, or clip "
                        "on the workers");
    shards_.pack(server_, initial, live_->floats(size_));
    slots_.floats(size_ * static_cast<std::size_t>(O::slots));
    for (std::size_t t = 0; t < shards_.tables().size(); ++t) tables_.push_back(table_of(t));
  }

  std::size_t size() const { return size_; }                    // elements
  std::size_t dense() const { return shards_.dense(server_); }  // of these, before the tables
  std::uint64_t version() const { return version_; }            // changes so far
  ShardLayout const& shards() const { return shards_; }
  int server() const { return server_; }

  Span<float const> values() const { return live_->floats(size_); }
  Span<float> slots() { return slots_.floats(size_ * static_cast<std::size_t>(O::slots)); }
  Snapshot snapshot() const { return live_; }

  /// Makes one change of related values: f(values, slots) writes both, laid out like shards().
  template <class F> void update(F&& f) {
    change(f);
    all_changed_ = version_;
  }

  /// Adds up rows of all tables, to be applied with the next gradients; values of a repeated row, in their order.
  void add_up(Span<RowGradients const> rows) {
    for (std::size_t t = 0; t < tables_.size(); ++t) tables_[t].sums.add_up(rows[t], tables_[t].elements);
  }
  bool sums_finite() const {
    return std::ranges::all_of(tables_, [](Table const& table) { return table.sums.finite(); });
  }

  /// Updates the shard with gradients, before its tables, and with the rows that add_up() got: sums over `rows` rows.
  void apply(Span<float const> gradients, float rows) {
    auto const scale = scale_of(rows, [&] { return Kernels<Cpu>::squared_norm(gradients) + squared_norm_of_rows(); });
    change([&](Span<float> values, Span<float> slots) {
      rule_.template update<Cpu>(optim::Update{values.first(dense()), gradients, slots, scale, now, size_});
      apply_tables(scale, values, slots);
    });
  }

  /// Updates the shard as apply() does, with its part of a flat buffer of gradients. Only if takes_pieces().
  void apply_flat(Span<float const> gradients, float rows) {
    CHORALE_EXPECTS(takes_pieces(), "the norm of a shard is that of the whole shard");
    change([&](Span<float> values, Span<float> slots) {
      shards_.pieces(server_, {0, dense()}, [&](Range flat, Range here) {
        rule_.template update<Cpu>(
            optim::Update{values.subspan(here.begin, here.size()), gradients.subspan(flat.begin, flat.size()),
                          O::slots == 0 ? slots : slots.subspan(here.begin), 1.0F / rows, now, size_});
      });
      apply_tables(1.0F / rows, values, slots);
    });
  }
  bool takes_pieces() const { return rule_.global_clipnorm <= 0; }

  /// Updates single rows: others keep their values and slots, whatever the optimizer does without a gradient. Gradients
  /// of a row that occurs twice are added up, in their order.
  void apply(RowGradients const& rows, float of_rows) {
    rows_.add_up(rows, {0, size_});
    auto const scale = scale_of(of_rows, [&] { return rows_.squared_norm(); });
    change([&](Span<float> values, Span<float> slots) { apply_rows(rows_, scale, values, slots); });
    for (auto& table : tables_)
      for (auto const& row : rows_.rows())
        if (row.at >= table.elements.begin && row.at < table.elements.end)
          table.changed.touch(table.index_of(row), version_);
  }

  /// True if rows that changed since a version say all: nothing else has changed but what lies before the tables.
  bool knows_since(std::uint64_t version) const {
    return dense() != size_ && version >= all_changed_ && version <= version_;
  }
  /// Calls f(row of the table, where it begins in the shard) for each row of a table that was changed after a version.
  template <class F> void each_row_since(std::uint64_t version, std::size_t table, F&& f) const {
    auto const& one = tables_[table];
    one.changed.each_since(version, [&](std::size_t row) {
      auto const at    = one.elements.begin + row * one.width;
      auto const above = std::ranges::upper_bound(shards_.parts(server_), at, {}, &ShardLayout::TablePart::base);
      auto const& part = *(above - 1);
      f(part.rows.begin + (at - part.base) / one.width, at);
    });
  }

  optim::Moment now;  // step: updates of this server

 private:
  /// The rows of a table that this server has; they follow one another.
  struct Table {
    std::size_t width;
    Range elements;  // of the shard
    ChangedRows changed;
    RowSums sums{};

    std::size_t index_of(RowGradient const& row) const { return (row.at - elements.begin) / width; }
  };

  Table table_of(std::size_t table) const {
    auto const width = shards_.tables()[table].width;
    auto rows = std::size_t{0}, first = size_;
    for (auto const& part : shards_.parts(server_))
      if (part.table == table) rows += part.rows.size(), first = std::min(first, part.base);
    return {width, {first, first + rows * width}, ChangedRows{rows}};
  }

  template <class F> void change(F&& f) {
    f(writable(), slots_.floats(size_ * static_cast<std::size_t>(O::slots)));
    ++version_;
  }

  double squared_norm_of_rows() const {
    auto squares = 0.0;
    for (auto const& table : tables_) squares += table.sums.squared_norm();
    return squares;
  }

  void apply_tables(float scale, Span<float> values, Span<float> slots) {
    for (auto& table : tables_) {
      apply_rows(table.sums, scale, values, slots);
      auto const rows = table.sums.rows();
      for (std::size_t k = 0; k < rows.size(); ++k) {
        if (k + ahead < rows.size()) table.changed.fetch(table.index_of(rows[k + ahead]));
        table.changed.touch(table.index_of(rows[k]), version_ + 1);
      }
    }
  }

  template <class SquaredNorm> float scale_of(float rows, SquaredNorm&& squared_norm) const {
    auto const mean = 1.0F / rows;
    if (rule_.global_clipnorm <= 0) return mean;
    return mean * optim::clip_factor(squared_norm(), mean, rule_.global_clipnorm);
  }

  /// The values, for writing: a copy if a snapshot of them is in use.
  Span<float> writable() {
    if (live_.use_count() > 2) {  // two uses: live_ and buffers_
      auto const next = unread();
      std::ranges::copy(values(), next->floats(size_).begin());
      live_ = next;
    }
    return live_->floats(size_);
  }

  Snapshot unread() {
    for (auto const& buffer : buffers_)
      if (buffer.use_count() == 1) return buffer;
    return buffers_.emplace_back(std::make_shared<Buffer>());
  }

  void apply_rows(RowSums const& rows, float scale, Span<float> values, Span<float> slots) {
    if constexpr (O::slots <= 1) apply_in_place(rows, scale, values, slots);
    else apply_gathered(rows, scale, values, slots);
  }

  /// Updates each row in place: with at most one slot, a row's slot is contiguous.
  void apply_in_place(RowSums const& sums, float scale, Span<float> values, Span<float> slots) {
    auto const rows  = sums.rows();
    auto const width = sums.width();
    for (std::size_t k = 0; k < rows.size(); ++k) {
      if (k + ahead < rows.size()) prefetch(values.data() + rows[k + ahead].at, width);
      auto const [at, gradients] = rows[k];
      rule_.template update<Cpu>(optim::Update{
          values.subspan(at, width), {gradients, width}, O::slots == 0 ? slots : slots.subspan(at, width), scale, now});
    }
  }

  /// Updates some rows at a time: gathers them with their slots, and writes them back.
  void apply_gathered(RowSums const& sums, float scale, Span<float> values, Span<float> slots) {
    constexpr auto parts = std::size_t{1} + O::slots;
    auto const rows      = sums.rows();
    auto const width = sums.width(), some = std::max<std::size_t>(1, 4'096 / width);
    for (std::size_t first = 0; first < rows.size(); first += some) {
      auto const n         = std::min(some, rows.size() - first);
      auto const here      = gathered_.floats(n * width * (parts + 1));  // values, slot 0, slot 1, .., gradients
      auto const each_part = [&](auto&& copy) {
        for (std::size_t part = 0; part < parts; ++part) {
          auto* const all = part == 0 ? values.data() : slots.data() + (part - 1) * size_;
          for (std::size_t k = 0; k < n; ++k) copy(all + rows[first + k].at, here.data() + (part * n + k) * width);
        }
      };
      each_part([&](float const* from, float* to) { std::memcpy(to, from, width * sizeof(float)); });
      auto const gradients = here.subspan(parts * n * width);
      for (std::size_t k = 0; k < n; ++k)
        std::memcpy(gradients.data() + k * width, rows[first + k].gradients, width * sizeof(float));
      rule_.template update<Cpu>(optim::Update{here.first(n * width), gradients,
                                               here.subspan(n * width, (parts - 1) * n * width), scale, now});
      each_part([&](float* to, float const* from) { std::memcpy(to, from, width * sizeof(float)); });
    }
  }

  /// Prefetches a row that is needed some iterations later.
  static void prefetch(float const* row, std::size_t width) {
    for (std::size_t k = 0; k < std::min<std::size_t>(width, 256); k += 16) __builtin_prefetch(row + k, 1);
  }

  static constexpr std::size_t ahead = 12;  // rows

  O rule_;
  ShardLayout shards_;
  int server_;
  std::size_t size_;
  std::vector<Snapshot> buffers_;  // live_, snapshots in use, and free ones
  Snapshot live_;
  Buffer slots_, gathered_;
  std::vector<Table> tables_;                    // of the layout, in its order
  RowSums rows_;                                 // of a push of rows
  std::uint64_t version_ = 0, all_changed_ = 0;  // all_changed_: version of the last update()
};

}  // namespace chorale::parameter_server
