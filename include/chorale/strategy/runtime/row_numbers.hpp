// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>

#include <bit>
#include <cstdint>

namespace chorale::detail {

/// The rows of one replica among the rows of all.
struct RowNumbers {
  std::uint64_t first = 0, all = 0;
};

/// Numbers the rows of all replicas, from rank 0 on. Every replica calls it, with its number of rows.
///
/// throws  Disagreement when what another rank has added up leaves no place for these rows
/// cost    about 2 + log2 P messages of 8 or 16 bytes, one after the other
RowNumbers number_rows(auto& replica, std::uint64_t rows) {
  auto const send = [&]<class V>(Rank peer, V const& mine) {
    replica.exchange(peer, std::as_bytes(Span<V const>{&mine, 1}), {});
  };
  auto const receive = [&]<class V>(Rank peer, V& from_peer) {
    replica.exchange(peer, {}, std::as_writable_bytes(Span<V>{&from_peer, 1}));
  };
  auto const rank   = replica.id();
  auto const refuse = [&](Rank peer, std::uint64_t of_peer) {
    throw Disagreement{Fault::collective_mismatch,
                       sentence("rank {} tells rank {} of {} rows in a step, where that rank alone has {}.", peer, rank,
                                of_peer, rows),
                       "the same calls on every rank, and a look at the memory of that host."};
  };
  auto const speak    = static_cast<int>(std::bit_floor(static_cast<unsigned>(replica.num_replicas())));
  auto const silent   = replica.num_replicas() - speak;  // ranks 1, 3, .. have the rank before speak
  constexpr auto most = std::uint64_t{1} << 40;          // rows: no sum of them overflows
  auto mine           = RowNumbers{.first = 0, .all = rows};
  auto theirs         = std::uint64_t{0};
  if (rank < 2 * silent && rank % 2 == 1) {
    send(rank - 1, rows);
    receive(rank - 1, mine);
    if (mine.all > most || rows > mine.all || mine.first > mine.all - rows) refuse(rank - 1, mine.all);
    return mine;
  }
  if (rank < 2 * silent) {
    receive(rank + 1, theirs);
    if (theirs > most) refuse(rank + 1, theirs);
    mine.all += theirs;
  }
  auto const place = rank < 2 * silent ? rank / 2 : rank - silent;
  for (int bit = 1; bit < speak; bit *= 2) {  // `all` is of `bit` neighbouring places
    auto const other = place ^ bit;
    auto const peer  = other < silent ? 2 * other : other + silent;
    replica.exchange(peer, std::as_bytes(Span<std::uint64_t const>{&mine.all, 1}),
                     std::as_writable_bytes(Span<std::uint64_t>{&theirs, 1}));
    if (theirs > most) refuse(peer, theirs);
    if (other < place) mine.first += theirs;
    mine.all += theirs;
  }
  if (rank < 2 * silent) send(rank + 1, RowNumbers{.first = mine.first + rows, .all = mine.all});
  return mine;
}

}  // namespace chorale::detail
