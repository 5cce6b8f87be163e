// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/hash.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Element type in which gradients of whole variables are sent to the servers, which add them up as floats. Values, and
/// rows of tables, are always floats.
enum class PushedAs : std::uint8_t { f32, bf16 };  // bf16: half the bytes, 8 bits of precision

/// Options that workers and servers of a parameter server share.
struct ParameterOptions {
  std::uint32_t incarnation = 0;  // higher after each restart of a worker
  NonFinite on_non_finite   = NonFinite::stop;
  Tag tag{0x5053'0000};                // of all messages
  PushedAs pushed_as = PushedAs::f32;  // of a worker; servers accept both
};

}  // namespace chorale

namespace chorale::parameter_server {

/// A matrix in the flat buffer of the variables; single rows of it are pushed and pulled.
struct RowTable {
  std::size_t offset = 0, rows = 0, width = 0;  // elements to row 0; rows; elements of a row

  std::size_t elements() const { return rows * width; }
  friend constexpr bool operator==(RowTable const&, RowTable const&) = default;
};

/// Layout of a plan's flat buffer on servers: which elements each server stores, and in which messages they are sent.
///
///   ranks    0 .. W - 1 workers | W .. W + S - 1 servers. Where each worker has d replicas, they are 0 .. W d - 1, of
///            which w d represents worker w; then servers
///   runs     of the flat buffer, ascending; a server stores its runs one after the other: its shard
///
///   a run of at least 64 KiB is sent in separate segments, from memory to memory; smaller runs share messages
///   tables whose gradients are rows come after all else, in the flat buffer and in each shard:
///
///   | dense variables | table | table |           a push brings the gradients of the dense ones, and rows of tables
///
/// throws  BadArgument when workers or servers are missing, runs are empty, out of order or overlap, or a run has a
///         part of a row of such a table
class ShardLayout {
 public:
  /// The server that stores a run of the flat buffer, and its place in the shard.
  struct Home {
    Range flat;
    int server;
    std::size_t base;  // of its first element, in the shard
  };

  /// Rows of a table that a shard stores one after the other.
  struct TablePart {
    std::size_t table;  // index in tables()
    Range rows;         // of the table
    std::size_t base;   // of the first element, in the shard
  };

  /// replicas   of each worker; each is a rank
  /// tables     whose gradients are rows, ascending; they come after all other runs
  ShardLayout(int workers, std::vector<std::vector<Range>> runs, int replicas = 1, std::vector<RowTable> tables = {})
      : workers_{workers}, replicas_{replicas}, runs_{std::move(runs)}, tables_{std::move(tables)},
        shards_(runs_.size()) {
    CHORALE_EXPECTS(replicas >= 1, "each worker has " + std::to_string(replicas) + " replicas");
    CHORALE_EXPECTS(
        workers >= 1 && !runs_.empty(),
        "parameters need workers and servers, got " + std::to_string(workers) + " and " + std::to_string(runs_.size()));
    for (std::size_t s = 0; s < runs_.size(); ++s) add_server(s);
    std::ranges::sort(homes_, {}, [](Home const& home) { return home.flat.begin; });
    for (std::size_t i = 1; i < homes_.size(); ++i)
      CHORALE_EXPECTS(homes_[i - 1].flat.end <= homes_[i].flat.begin,
                      "element " + std::to_string(homes_[i].flat.begin) + " is on servers " +
                          std::to_string(homes_[i - 1].server) + " and " + std::to_string(homes_[i].server));
    fingerprint_.add(static_cast<std::uint64_t>(workers));
    for (auto const& home : homes_)
      for (auto const n : {home.flat.begin, home.flat.end, static_cast<std::size_t>(home.server)}) fingerprint_.add(n);
    for (auto const& table : tables_)
      for (auto const n : {table.offset, table.rows, table.width}) fingerprint_.add(n);
  }

  int workers() const { return workers_; }
  int servers() const { return static_cast<int>(runs_.size()); }
  int ranks() const { return workers_ * replicas_ + servers(); }
  Rank rank_of(int server) const { return workers_ * replicas_ + server; }
  Rank rank_of_worker(int worker) const { return worker * replicas_; }

  /// True if this rank represents a worker; worker_at() is the worker of any replica's rank.
  bool is_worker(Rank rank) const { return rank < workers_ * replicas_ && rank % replicas_ == 0; }
  int worker_at(Rank rank) const { return rank / replicas_; }

  Span<Range const> runs(int server) const { return runs_[at(server)]; }
  std::size_t elements(int server) const { return shards_[at(server)].elements; }  // of its shard
  std::size_t dense(int server) const { return shards_[at(server)].dense; }        // of these, before the tables
  std::size_t elements() const {                                                   // of all shards
    auto all = std::size_t{0};
    for (auto const& shard : shards_) all += shard.elements;
    return all;
  }

  /// Tables whose gradients are rows; parts(): the rows of them that a server has, in the order of its shard.
  Span<RowTable const> tables() const { return tables_; }
  Span<TablePart const> parts(int server) const { return shards_[at(server)].parts; }

  /// Minimum size of the flat buffer, in elements; dense_extent(): of one of gradients, which has no tables.
  std::size_t extent() const { return homes_.empty() ? 0 : homes_.back().flat.end; }
  std::size_t dense_extent() const {
    auto const first = std::ranges::partition_point(homes_, [this](Home const& h) { return !is_table(h.flat); });
    return first == homes_.begin() ? 0 : (first - 1)->flat.end;
  }

  /// throws  BadArgument when a flat buffer of this size is too small; or one of gradients
  void expect_in(std::size_t size) const { expect(size, extent()); }
  void expect_gradients_in(std::size_t size) const { expect(size, dense_extent()); }

  /// Ranges of a shard, one message each: of all of it, or of what lies before its tables.
  Span<Range const> messages(int server) const { return shards_[at(server)].messages; }
  Span<Range const> dense_messages(int server) const {
    return messages(server).first(shards_[at(server)].dense_messages);
  }

  /// All runs of all servers, ascending.
  Span<Home const> homes() const { return homes_; }

  /// The last two runs that home_of() found, which it searches first.
  using Found = std::array<Home const*, 2>;

  /// The run that contains all of a range of the flat buffer; null when there is none.
  Home const* home_of(Range flat, Found& found) const {
    auto const contains = [&](Home const& h) { return h.flat.begin <= flat.begin && flat.end <= h.flat.end; };
    for (auto const* home : found)
      if (home != nullptr && contains(*home)) return home;
    auto const above = std::ranges::upper_bound(homes_, flat.begin, {}, [](Home const& h) { return h.flat.begin; });
    if (above == homes_.begin() || !contains(*(above - 1))) return nullptr;
    found[1] = std::exchange(found[0], &*(above - 1));
    return found[0];
  }

  /// Calls f(flat, shard) for each piece of a run that is in a range of a shard; both ranges have the same size.
  template <class F> void pieces(int server, Range shard, F&& f) const {
    auto base = std::size_t{0};
    for (auto const run : runs(server)) {
      auto const begin = std::max(shard.begin, base), end = std::min(shard.end, base + run.size());
      if (begin < end) f(Range{run.begin + begin - base, run.begin + end - base}, Range{begin, end});
      base += run.size();
      if (base >= shard.end) return;
    }
  }

  /// Copies a server's shard out of a flat buffer.
  void pack(int server, Span<float const> flat, Span<float> shard) const {
    pack(server, elements(server), flat, shard);
  }
  /// Copies what lies before its tables.
  void pack_dense(int server, Span<float const> flat, Span<float> shard) const {
    pack(server, dense(server), flat, shard);
  }

  /// Hash that is equal for equal shards and numbers of workers: compared with every message.
  std::uint64_t fingerprint() const { return fingerprint_.value(); }

 private:
  static constexpr std::size_t segment = std::size_t{128} << 10;  // elements of the largest message
  static constexpr std::size_t small   = std::size_t{16} << 10;   // shorter runs share a message

  static std::size_t at(int server) { return static_cast<std::size_t>(server); }

  /// What one server stores.
  struct Shard {
    std::vector<Range> messages;
    std::size_t elements = 0, dense = 0, dense_messages = 0;  // dense: before the tables
    std::vector<TablePart> parts;
  };

  void pack(int server, std::size_t elements, Span<float const> flat, Span<float> shard) const {
    pieces(server, {0, elements}, [&](Range from, Range to) {
      std::ranges::copy(flat.subspan(from.begin, from.size()), shard.begin() + static_cast<std::ptrdiff_t>(to.begin));
    });
  }

  static void expect(std::size_t size, std::size_t extent) {
    CHORALE_EXPECTS(size >= extent,
                    "the shards end at element " + std::to_string(extent) + ", the buffer at " + std::to_string(size));
  }
  bool is_table(Range run) const { return !tables_.empty() && run.begin >= tables_.front().offset; }

  void add_server(std::size_t s) {
    auto& shard = shards_[s];
    auto base = std::size_t{0}, open = std::size_t{0};  // open: where the shared message begins
    auto const close = [&] {
      if (open < base) shard.messages.push_back({open, base});
      open = base;
    };
    auto const end_dense = [&] {
      close();
      shard.dense          = base;
      shard.dense_messages = shard.messages.size();
    };
    for (auto last = std::size_t{0}; auto const run : runs_[s]) {
      CHORALE_EXPECTS(run.begin >= last && run.begin < run.end,
                      "elements " + std::to_string(run.begin) + " to " + std::to_string(run.end) + " of server " +
                          std::to_string(s) + " are empty, or not behind element " + std::to_string(last));
      if (is_table(run)) {
        if (shard.parts.empty()) end_dense();
        add_parts(shard, run, base);
      }
      last = run.end;
      homes_.push_back({run, static_cast<int>(s), base});
      if (run.size() < small) {
        base += run.size();
        if (base - open >= small) close();
        continue;
      }
      close();
      for (auto const end = base + run.size(); base < end;) {
        base = std::min(base + segment, end);
        close();
      }
    }
    close();
    if (shard.parts.empty()) end_dense();
    shard.elements = base;
  }

  /// Adds the rows of tables in a run, which begins at element `base` of the shard.
  void add_parts(Shard& shard, Range run, std::size_t base) const {
    auto found = std::size_t{0};
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      auto const [offset, rows, width] = tables_[t];
      auto const begin = std::max(run.begin, offset), end = std::min(run.end, offset + rows * width);
      if (begin >= end) continue;
      if ((begin - offset) % width != 0 || (end - offset) % width != 0) break;
      found += end - begin;
      shard.parts.push_back({t, {(begin - offset) / width, (end - offset) / width}, base + begin - run.begin});
    }
    CHORALE_EXPECTS(found == run.size(), "elements " + std::to_string(run.begin) + " to " + std::to_string(run.end) +
                                             " are no whole rows of a table whose gradient is rows: cut it along axis "
                                             "0, or not at all");
  }

  int workers_, replicas_;
  std::vector<std::vector<Range>> runs_;  // [server]
  std::vector<RowTable> tables_;
  std::vector<Shard> shards_;  // [server]
  std::vector<Home> homes_;
  Fnv1a<std::uint64_t> fingerprint_;
};

}  // namespace chorale::parameter_server
