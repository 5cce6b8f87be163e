// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/half.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/messages.hpp>
#include <chorale/strategy/parameter_server/rounds.hpp>
#include <chorale/strategy/parameter_server/shard.hpp>
#include <chorale/strategy/parameter_server/transfer.hpp>
#include <chorale/transport/transport.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chorale::parameter_server {

/// A server's session with one worker: one request at a time, from its first byte to the last byte of its reply.
///
///   request ─▶ begins ─▶ payload ─▶ answers ─▶ answer ─▶ request, or gone
///              begins and answers wait until Consistency allows them
///
/// keeps   a request, and then its payload, is received in full before it is used
template <Endpoint E> struct Session {
  enum class Stage { request, begins, payload, answers, answer, gone };

  Stage stage = Stage::request;
  Request request;
  Reply reply;
  Contribution incoming;
  std::uint64_t clock       = 0;  // of the incoming push
  std::uint64_t last        = 0;  // last sequence received in full
  std::uint32_t incarnation = 0;
  std::vector<std::byte> result;      // of the last update
  std::optional<std::string> thrown;  // what() of what its function threw
  Transfer<E> in{Transfer<E>::Direction::in}, out{Transfer<E>::Direction::out};

  bool is_duplicate() const { return request.sequence <= last; }

  void listen() {
    stage = Stage::request;
    sending_.reset();
    in.add(bytes_of(request));
  }

  void refuse(std::string const& why) {
    reply.outcome = Outcome::refused;
    reply.say(why);
    stage = Stage::answers;
  }

  /// Replies what the function of the last update threw, if it did.
  void report_update() {
    if (!thrown) return;
    reply.outcome = Outcome::failed;
    reply.say(*thrown);
  }

  void await_payload(ShardLayout const& shards, int server) {
    auto const& r        = request;
    auto const announced = [this](Buffer& into, std::size_t bytes) {
      in.add_growing(bytes, into.room(), [&into](std::size_t n) { return into.kept(n); });
    };
    if (of_rows(r.call)) announced(incoming.indices, r.count * r.index_bytes);
    if (r.sends_values() && of_rows(r.call)) announced(incoming.values, r.count * r.table.width * sizeof(float));
    auto const messages = pushes(r.call) ? shards.dense_messages(server) : shards.messages(server);
    auto const elements = pushes(r.call) ? shards.dense(server) : shards.elements(server);
    if (r.as == PushedAs::bf16 && r.brings_values()) {
      auto const into = halves_.bytes(elements * sizeof(bf16));
      for (auto const part : messages) in.add(into.subspan(part.begin * sizeof(bf16), part.size() * sizeof(bf16)));
    } else if (r.sends_values() && !of_rows(r.call)) {
      auto const into = incoming.values.floats(elements);
      for (auto const part : messages) in.add(std::as_bytes(into.subspan(part.begin, part.size())));
    }
    if (r.call == Call::update) announced(incoming.words, r.count);
    if (r.brings_tables()) announced(incoming.words, r.count * word);
    stage = Stage::payload;
  }

  /// Converts gradients that were sent in 16 bits to floats.
  void widen(std::size_t elements) {
    if (request.as != PushedAs::bf16 || !request.brings_values()) return;
    auto const bytes = halves_.bytes(elements * sizeof(bf16));
    auto const to    = incoming.values.floats(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      auto bits = std::uint16_t{};
      std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
      to[i] = std::bit_cast<bf16>(bits);
    }
  }

  /// Locates the gradients that the worker left in its shared memory. They stay readable until the reply is sent.
  /// Returns an error text, or an empty string on success.
  ///
  /// copied   copies them, because they are used later
  std::string find_placed(E& at, Rank worker, ShardLayout const& shards, int server, bool copied) {
    auto const& r   = request;
    incoming.placed = {};
    if (r.place == 0 || !r.brings_values()) return {};
    auto const all = in_place(at, worker, r, shards);
    if (all.empty())
      return "its gradients are said to lie at byte " + std::to_string(r.place - 1) +
             " of its shared memory, where they do not fit";
    if (!copied) incoming.placed = all;
    else if (of_rows(r.call)) std::ranges::copy(all, incoming.values.floats(all.size()).begin());
    else shards.pack_dense(server, all, incoming.values.floats(shards.dense(server)));
    return {};
  }

  /// Locates the rows of all tables of a push in the shard.
  /// Returns an error text if they are not what the request announces, or an empty string on success.
  std::string find_tables(ShardLayout const& shards, int server) {
    auto const& r    = incoming.request;
    auto const words = incoming.words.bytes(r.count * word);
    auto at          = std::size_t{0};
    incoming.tables.resize(shards.tables().size());
    for (std::size_t t = 0; t < shards.tables().size(); ++t) {
      auto const& table = shards.tables()[t];
      auto& rows        = incoming.tables[t];
      rows.width        = table.width;
      rows.rows.clear();
      if (r.count - at < 2) return "the rows of table " + std::to_string(t) + " are missing";
      auto const n = index_at<std::uint32_t>(words, at), vectors = index_at<std::uint32_t>(words, at + 1);
      auto const first = at + 2 + 2 * n;  // word of the first vector
      if (vectors > (r.count - at) / table.width || first + vectors * table.width > r.count)
        return std::to_string(n) + " rows and " + std::to_string(vectors) + " vectors of table " + std::to_string(t) +
               " are not in " + std::to_string(r.count) + " words";
      auto const* values = reinterpret_cast<float const*>(words.data() + first * word);
      auto found         = ShardLayout::Found{};
      for (std::size_t i = 0; i < n; ++i) {
        auto const row    = index_at<std::uint32_t>(words, at + 2 + i);
        auto const vector = index_at<std::uint32_t>(words, at + 2 + n + i);
        auto const begin  = table.offset + row * table.width;
        auto const* home  = row < table.rows ? shards.home_of({begin, begin + table.width}, found) : nullptr;
        if (home == nullptr || home->server != server || vector >= vectors)
          return "row " + std::to_string(row) + " of " + std::to_string(table.rows) + " is not on server " +
                 std::to_string(server) + ", or has none of the " + std::to_string(vectors) + " vectors";
        rows.rows.push_back({home->base + begin - home->flat.begin, values + vector * table.width});
      }
      at = first + vectors * table.width;
    }
    return at == r.count ? std::string{} : std::to_string(r.count - at) + " words follow the rows of all tables";
  }

  /// Locates the rows of the table in the shard. Of rows that are read in place, it skips the rows of other servers.
  /// Returns an error text if another row is not in this shard, or an empty string on success.
  std::string find_rows(ShardLayout const& shards, int server) {
    auto const& r    = incoming.request;
    auto& rows       = incoming.rows;
    auto const bytes = incoming.indices.bytes(r.count * r.index_bytes);
    auto found       = ShardLayout::Found{};
    rows.width       = r.table.width;
    rows.rows.clear();
    rows.rows.reserve(r.count);
    auto const* gradients = !incoming.placed.empty() ? incoming.placed.data()
                            : r.brings_values()      ? incoming.values.floats(r.count * r.table.width).data()
                                                     : nullptr;
    for (std::size_t i = 0; i < r.count; ++i) {
      auto const row   = r.index_bytes == 4 ? index_at<std::uint32_t>(bytes, i) : index_at<std::uint64_t>(bytes, i);
      auto const first = r.table.offset + row * r.table.width;
      auto const* home = row < r.table.rows ? shards.home_of({first, first + r.table.width}, found) : nullptr;
      if (home != nullptr && home->server != server && r.place != 0) continue;
      if (home == nullptr || home->server != server)
        return "row " + std::to_string(row) + " of " + std::to_string(r.table.rows) + " is not on server " +
               std::to_string(server);
      rows.rows.push_back(
          {home->base + first - home->flat.begin, gradients == nullptr ? nullptr : gradients + i * r.table.width});
    }
    return {};
  }

  // Data that follows the reply.

  /// Sends a snapshot, and keeps it until all of it is sent.
  void send_values(std::shared_ptr<Buffer> snapshot, ShardLayout const& shards, int server) {
    reply.count       = shards.elements(server);
    sending_          = std::move(snapshot);
    auto const values = sending_->floats(reply.count);
    for (auto const part : shards.messages(server)) out.add(std::as_bytes(values.subspan(part.begin, part.size())));
  }

  /// Sends copies of what has changed since the worker's version: all before the tables, and rows of these.
  template <class Shard> void send_changes(Shard const& shard) {
    auto const values = shard.values();
    auto const dense  = shard.dense();
    auto const copy   = gathered_.floats(dense);
    std::ranges::copy(values.first(dense), copy.begin());
    for (auto const part : shard.shards().dense_messages(shard.server()))
      out.add(std::as_bytes(copy.subspan(part.begin, part.size())));
    words_.clear();
    for (std::size_t t = 0; t < shard.shards().tables().size(); ++t) {
      auto const width = shard.shards().tables()[t].width;
      auto const count = words_.size();
      places_.clear();
      words_.push_back(0);
      shard.each_row_since(request.version, t, [&](std::size_t row, std::size_t at) {
        words_.push_back(static_cast<std::uint32_t>(row));
        places_.push_back(at);
      });
      words_[count] = static_cast<std::uint32_t>(places_.size());
      auto to       = words_.size();
      words_.resize(to + places_.size() * width);
      for (auto const at : places_) {
        std::memcpy(words_.data() + to, values.data() + at, width * sizeof(float));
        to += width;
      }
    }
    reply.count = dense;
    reply.words = words_.size();
    out.add_cut(std::as_bytes(Span<std::uint32_t const>{words_}));
  }

  /// Sends the rows that find_rows() located.
  void send_rows(Span<float const> values) {
    auto const& rows = incoming.rows;
    auto const width = rows.width;
    auto const to    = gathered_.floats(rows.rows.size() * width);
    for (std::size_t i = 0; i < rows.rows.size(); ++i)
      std::memcpy(to.data() + i * width, values.data() + rows.rows[i].at, width * sizeof(float));
    reply.count = to.size();
    out.add_cut(std::as_bytes(to));
  }

  /// Sends copies of both, one after the other.
  void send_copies(ConstBytes first, ConstBytes second) {
    auto const copy = gathered_.bytes(first.size() + second.size());
    std::ranges::copy(second, std::ranges::copy(first, copy.begin()).out);
    reply.count = copy.size();
    out.add_cut(copy);
  }

  void end() {
    in.clear();
    out.clear();
    sending_.reset();
    stage = Stage::gone;
  }

 private:
  static constexpr std::size_t word = sizeof(std::uint32_t);  // of rows of tables

  template <class Index> static std::uint64_t index_at(ConstBytes bytes, std::size_t i) {
    auto index = Index{};
    std::memcpy(&index, bytes.data() + i * sizeof index, sizeof index);
    return index;
  }

  std::shared_ptr<Buffer> sending_;
  Buffer gathered_, halves_;
  std::vector<std::uint32_t> words_;  // of the rows that send_changes() found
  std::vector<std::size_t> places_;   // of these in the shard
};

}  // namespace chorale::parameter_server
