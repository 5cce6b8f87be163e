// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale {

/// Bytes at which both ends cut a message whose length the sender announces. Its receiver allocates memory for a piece
/// when those before it have arrived: an announcement that is not true costs one piece, and not what it says.
inline constexpr std::size_t piece_bytes = std::size_t{4} << 20;

/// Values of a piece.
template <class T> inline constexpr std::size_t piece_of = piece_bytes / sizeof(T);

/// Piece i of values; empty after their end.
template <class T> constexpr Span<T> piece(Span<T> values, std::size_t i) {
  auto const begin = std::min(i * piece_of<T>, values.size());
  return values.subspan(begin, std::min(piece_of<T>, values.size() - begin));
}

/// Sends values to a peer while n values arrive, as many as a peer has announced.
///
/// in         becomes the n values; its memory grows with them, and is kept
/// exchange   called as exchange(Span<T const> sent, Span<T> received) for each piece; either may be empty
template <class T, class Exchange>
void exchange_in_pieces(Span<T const> out, std::vector<T>& in, std::size_t n, Exchange&& exchange) {
  for (std::size_t i = 0, begin = 0; begin < std::max(out.size(), n); begin = ++i * piece_of<T>) {
    in.resize(std::max(in.size(), std::min(n, begin + piece_of<T>)));
    exchange(piece(out, i), piece(Span<T>{in}.first(std::min(n, in.size())), i));
  }
  in.resize(n);
}

/// Concatenates the lists of all ranks, in the order of ranks. Each rank has announced the length of its list.
///
/// mine     the list of rank `me`: counts[me] values
/// all      begins with the lists afterwards. It never becomes shorter, and grows by more than a piece only with what
///          has arrived
/// gather   an all-gather, called as gather(Span<T const> mine, Span<T> all, Span<std::size_t const> counts)
/// cost     one all-gather if `all` has room but for a piece; else one for each piece, and a copy
/// keeps    all ranks call it with the same counts, and an `all` of the same size
template <class T, class Gather>
void gather_in_pieces(std::size_t me, Span<T const> mine, std::vector<T>& all, Span<std::size_t const> counts,
                      Gather&& gather) {
  auto total = std::size_t{0};
  for (auto const n : counts) total += n;
  if (total <= all.size() || total - all.size() <= piece_of<T>) {
    all.resize(std::max(all.size(), total));
    return gather(mine, Span<T>{all}.first(total), counts);
  }
  auto const most = std::max<std::size_t>(1, piece_of<T> / counts.size()), longest = std::ranges::max(counts);
  auto lists   = std::vector<std::vector<T>>(counts.size());
  auto parts   = std::vector<std::size_t>(counts.size());
  auto arrived = std::vector<T>{};
  for (std::size_t begin = 0; begin < longest; begin += most) {
    auto sum = std::size_t{0};
    for (std::size_t r = 0; r < parts.size(); ++r)
      sum += parts[r] = std::min(most, counts[r] - std::min(begin, counts[r]));
    arrived.resize(sum);
    gather(mine.subspan(std::min(begin, mine.size()), parts[me]), Span<T>{arrived}, Span<std::size_t const>{parts});
    for (auto from = arrived.begin(); auto& list : lists) {
      auto const n = static_cast<std::ptrdiff_t>(parts[static_cast<std::size_t>(&list - lists.data())]);
      list.insert(list.end(), from, from + n);
      from += n;
    }
  }
  all.clear();
  for (auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
    list = {};
  }
}

}  // namespace chorale
