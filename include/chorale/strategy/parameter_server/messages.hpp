// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/strategy/parameter_server/server_update.hpp>
#include <chorale/strategy/parameter_server/shard_layout.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace chorale::parameter_server {

/// Calls of a worker to a parameter server.
///
///   worker -> server    request | push: the shard's gradients, then rows of tables | rows: indices, then values of a push
///   server -> worker    reply   | pull: the shard, when it is newer | rows: values | total: all reports
///
/// Where the shard has tables whose gradients are rows, a push brings the rows that are not zero, and a pull the rows
/// that have changed since the version that the worker has. For each table of the layout, in 4-byte words:
///
///   push   | n | v | n rows | n vectors | v vectors of width floats |       row i has vector vectors[i]
///   pull   | n | n rows | n vectors of width floats |
enum class Call : std::uint8_t {
  push = 1,
  pull,
  push_and_pull,
  push_rows,
  pull_rows,
  assign,  // replaces the values
  pull_slot,
  assign_slot,
  assign_step,  // optimizer: slot `count`, step `version`
  report,
  total,
  update,  // a ServerUpdate of key `version`
  leave
};

constexpr bool pushes(Call c) { return c == Call::push || c == Call::push_and_pull || c == Call::push_rows; }
constexpr bool of_rows(Call c) { return c == Call::push_rows || c == Call::pull_rows; }

/// Outcome of a request.
enum class Outcome : std::uint8_t {
  done,        // of a push: it is, or will be, applied
  late,        // its round had closed: dropped
  skipped,     // it was not finite: dropped
  not_finite,  // it was not finite: nothing was applied
  refused,     // the request is not valid; see text
  failed,      // the function of an update threw; see text
};

/// Reason why a push has no numbers.
enum class ServerFault : std::uint8_t { none, gradient, loss };

inline constexpr std::uint64_t parameter_magic = 0x3230'5350'6c72'6863;  // "chrlPS02"
inline constexpr std::size_t parameter_sums    = 16;                     // numbers of a report

/// A request, as its bytes are sent.
///
/// sequence   of this worker at this server: 1, 2, ..; a push whose sequence the server has is not applied again
/// seen       the server's clock when the values were pulled from which a push was computed
/// place      of a push whose gradients the server reads in place: see place_of(). 0: they follow
/// turn       no push of this worker is of an earlier round, on any server: a worker that is late on one is late on
///            all, so that no two servers wait for workers that wait for each other
struct Request {
  std::uint64_t magic    = parameter_magic;
  std::uint64_t layout   = 0;  // ShardLayout::fingerprint()
  std::uint64_t sequence = 0;
  std::uint64_t seen     = 0;
  std::uint64_t turn     = 0;  // the newest clock in any server's reply
  std::uint64_t version  = 0;  // that the worker has, or a step to be set
  std::uint64_t count    = 0;  // rows or, of tables, words; or a slot;
                               // or bytes of an update's message
  std::uint64_t place    = 0;
  RowTable table{};
  std::int32_t worker       = 0;
  std::uint32_t incarnation = 0;
  std::int32_t epoch        = 0;
  std::uint32_t index_bytes = 0;  // 4 or 8; of an update: how many ranges
  float rows = 0, loss = 0;       // of the batch: gradients are sums over them
  Call call         = Call::leave;
  ServerFault fault = ServerFault::none;
  PushedAs as       = PushedAs::f32;  // the gradients of a push
  std::array<char, 5> unused{};
  std::array<double, parameter_sums> sums{};  // of a report

  bool brings_values() const {
    return (pushes(call) && fault == ServerFault::none) || call == Call::assign || call == Call::assign_slot;
  }
  bool sends_values() const { return brings_values() && place == 0; }
  bool brings_tables() const { return pushes(call) && call != Call::push_rows && fault == ServerFault::none; }
};

/// A reply, as its bytes are sent.
struct Reply {
  std::uint64_t magic    = parameter_magic;
  std::uint64_t sequence = 0;            // of the request
  std::uint64_t version = 0, clock = 0;  // of the values; updates or rounds so far
  std::uint64_t count    = 0;            // floats that follow, or bytes of a total
  std::uint64_t words    = 0;            // of rows of tables that follow these
  std::int32_t server    = 0;
  Outcome outcome        = Outcome::done;
  std::uint8_t duplicate = 0;  // 1: a push that the server had before
  std::array<char, 2> unused{};
  std::array<double, parameter_sums> sums{};  // of a total; else the optimizer's step
  std::array<char, 192> text{};               // why it was refused

  void say(std::string_view why) { std::ranges::copy(why.substr(0, text.size() - 1), text.begin()); }
  std::string said() const { return printable({text.begin(), std::ranges::find(text, '\0')}); }
};

static_assert(std::is_trivially_copyable_v<Request> && std::has_unique_object_representations_v<RowTable>);
static_assert(std::is_trivially_copyable_v<Reply> && sizeof(Request) == 248);
static_assert(std::endian::native == std::endian::little, "chorale: these messages travel as they lie in memory");

/// The most rounds by which one server may lag another: more than Consistency allows between two requests of a worker.
inline constexpr std::uint64_t most_rounds_apart = 1024;

/// Returns what is wrong with a request; empty if it is valid.
///
/// clock   of the server: no worker has seen a later one
inline std::string what_is_wrong(Request const& r, Rank from, ShardLayout const& shards, std::uint64_t clock) {
  constexpr auto most = std::size_t{1} << 24;  // elements of rows, or of all shards if more
  auto const number   = [](auto n) { return std::to_string(static_cast<long long>(n)); };
  if (r.magic != parameter_magic) return "it does not begin like a request";
  if (r.worker != from) return "it says that it is of worker " + number(r.worker);
  if (r.layout != shards.fingerprint()) return "it has other shards, or another number of workers";
  if (r.call < Call::push || r.call > Call::leave || r.fault > ServerFault::loss)
    return "it makes call " + number(r.call) + ", fault " + number(r.fault);
  if (r.as > PushedAs::bf16 || (r.as != PushedAs::f32 && (!pushes(r.call) || of_rows(r.call))))
    return "call " + number(r.call) + " brings numbers of kind " + number(r.as);
  if (r.place != 0 && (!pushes(r.call) || r.as != PushedAs::f32))
    return "call " + number(r.call) + " names a place for numbers of kind " + number(r.as);
  if (r.seen > clock) return "it saw clock " + number(r.seen) + ", but the server's is " + number(clock);
  if (r.turn > clock + most_rounds_apart)
    return "it saw clock " + number(r.turn) + " on another server, but here it is " + number(clock);
  if (pushes(r.call) && !(r.rows >= 0)) return "its gradients are of less than 0 rows";
  if (pushes(r.call) && std::isinf(r.rows)) return "its gradients are of more rows than there can be";
  if (r.epoch < 0 || r.epoch == std::numeric_limits<std::int32_t>::max()) return "it is of epoch " + number(r.epoch);
  if (r.call == Call::assign_step && r.version >> 62 != 0) return "it sets step " + std::to_string(r.version);
  if (r.brings_tables() && r.count > 2 * shards.tables().size() + std::max(most, 64 * shards.elements()))
    return "it has " + number(r.count) + " words of rows of tables at once";
  if (r.call == Call::update && (r.count > most_update_bytes || r.index_bytes > r.count / sizeof(Range)))
    return "its update of " + number(r.index_bytes) + " variables has " + number(r.count) + " bytes";
  if (!of_rows(r.call)) return {};
  auto const dense_end = shards.tables().empty() ? shards.extent() : shards.tables().front().offset;
  auto const is_table  = std::ranges::find(shards.tables(), r.table) != shards.tables().end();
  if (r.index_bytes != 4 && r.index_bytes != 8) return "its indices have " + number(r.index_bytes) + " bytes";
  if (r.table.width == 0 || r.table.rows > shards.extent() / r.table.width || r.table.offset > shards.extent())
    return "its table has " + number(r.table.rows) + " rows of " + number(r.table.width) + " at element " +
           number(r.table.offset);
  if (!is_table && r.table.offset + r.table.elements() > dense_end)
    return "its table at element " + number(r.table.offset) + " is none of the " + number(shards.tables().size()) +
           " whose gradients are rows";
  if (r.count > std::max(most, shards.elements()) / r.table.width)
    return "it is about " + number(r.count) + " rows of " + number(r.table.width) + " at once";
  return {};
}

template <class T> Bytes bytes_of(T& message) { return std::as_writable_bytes(Span<T>{&message, 1}); }

}  // namespace chorale::parameter_server
