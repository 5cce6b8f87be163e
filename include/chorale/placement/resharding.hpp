// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/placement/layout.hpp>
#include <chorale/placement/variable_piece.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::placement {

/// Rows of one variable that are in a piece of an old layout and in a piece of a new one.
struct Move {
  std::size_t from = 0, to = 0;  // indices of the two pieces
  Piece part;                    // the rows; its server is the new one

  friend constexpr bool operator==(Move const&, Move const&) = default;
};

/// Returns the copies that bring variables from one layout to another: other shards, other servers. Every server copies
/// rows straight from piece to piece, and none holds a whole variable.
///
/// keeps   in the order of rows; together the moves cover every variable once. Moves within a server are included
/// cost    constant for each move; there are at most as many as pieces in both layouts
/// throws  BadArgument when the layouts are of other variables, or cut one along two axes: go by way of a layout of
///         whole variables
template <class P, class V, class Q, class W>
constexpr std::vector<Move> resharding_copies(Layout<P, V> const& from, Layout<Q, W> const& to) {
  CHORALE_EXPECTS(std::equal(from.variables.begin(), from.variables.end(), to.variables.begin(), to.variables.end()),
                  "two layouts of other variables: " + std::to_string(from.variables.size()) + " and " +
                      std::to_string(to.variables.size()) + ", or other names or shapes");
  auto all = std::vector<Move>{};
  for (std::size_t i = 0, j = 0; i < from.pieces.size();) {
    auto const& a     = from.pieces[i];
    auto const& b     = to.pieces[j];
    auto const& shape = from.variable_of(a);
    auto const axis   = is_whole(a, shape) ? b.axis : a.axis;
    CHORALE_EXPECTS(b.axis == axis || is_whole(b, shape), "variable " + std::string{std::string_view{shape.name}} +
                                                              " is cut along axis " + std::to_string(axis) +
                                                              " in one layout and along axis " +
                                                              std::to_string(b.axis) + " in the other");
    auto const rows_of = [&](Piece const& piece) {
      return piece.axis == axis ? piece.along : Range{0, shape.extent(axis)};
    };
    auto const old = rows_of(a), now = rows_of(b);
    auto const rows = Range{std::max(old.begin, now.begin), std::min(old.end, now.end)};
    if (shape.elements() > 0) all.push_back({i, j, {a.variable, rows, axis, b.server}});
    i += old.end <= now.end;
    j += now.end <= old.end;
  }
  return all;
}

/// The rows of a move relative to one of its pieces: their place in the memory of that piece's server.
///
///   auto const& old = from.pieces[move.from];
///   copy_out(within(old, move.part), shape_of(old, shape), held, rows);        // send rows, then copy_in() likewise
///
/// piece   either of the move's two
constexpr Piece within(Piece const& piece, Piece part) {
  auto const begin = piece.along.begin;  // 0 when cut along another axis: it is whole
  part.along       = {part.along.begin - begin, part.along.end - begin};
  return part;
}

}  // namespace chorale::placement
