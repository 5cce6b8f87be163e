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
template <class T>
inline constexpr std::size_t piece_of = piece_bytes / sizeof(T);

/// Piece i of values; empty behind their end.
template <class T>
constexpr Span<T> piece(Span<T> values, std::size_t i) {
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

}  // namespace chorale
