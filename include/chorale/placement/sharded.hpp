// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/placement/variable_piece.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <vector>

namespace chorale::placement {

/// Deals variables out to servers. See RoundRobin, GreedyByBytes, Partitioned. A Sharding that also has cut() makes the
/// pieces; otherwise each piece is a whole variable.
template <class S>
concept Sharding =
    Placement<S> && requires(S const& sharding, Span<Piece> pieces, Span<VariableShape const> variables, int servers) {
      { sharding.assign(pieces, variables, servers) } -> std::same_as<void>;  // sets each piece's server, nothing else
    };

/// Deals pieces out to servers: the i-th in reading order goes to server i modulo servers. Without Partitioned<..>, a
/// piece is a whole variable. Optimizer slots are stored beside their variable's piece.
///
/// keeps   numbers of pieces differ by at most one between servers; bytes may differ by any factor
/// source  tf.compat.v1.train.replica_device_setter
struct RoundRobin : Central {
  constexpr void assign(Span<Piece> pieces, Span<VariableShape const>, int servers) const {
    for (std::size_t i = 0; i < pieces.size(); ++i)
      pieces[i].server = static_cast<int>(i % static_cast<std::size_t>(servers));
  }
};

/// Deals pieces out to servers by bytes: the largest first, each to the server that has least so far. Without
/// Partitioned<..>, a piece is a whole variable. Optimizer slots are stored beside their variable's piece, and make all
/// pieces larger by one factor, so that they do not change where a piece goes.
///
/// keeps   the heaviest server has at most 4/3 of the bytes of the best assignment, and at most the bytes of all
///         servers / their number + the largest piece
/// order   equal pieces in reading order, equal servers by their number: the same assignment on every rank
/// cost    pieces · (log(pieces) + servers), once
/// source  Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math., 1969;
///         tf.contrib.training.GreedyLoadBalancingStrategy, which takes variables in the order of their creation
struct GreedyByBytes : Central {
  constexpr void assign(Span<Piece> pieces, Span<VariableShape const> variables, int servers) const {
    struct Heavy {
      std::size_t bytes, piece;
    };
    auto heaviest_first = std::vector<Heavy>{};
    heaviest_first.reserve(pieces.size());
    for (auto const& piece : pieces)
      heaviest_first.push_back({bytes(piece, variables[piece.variable]), heaviest_first.size()});
    std::sort(heaviest_first.begin(), heaviest_first.end(), [](Heavy const& a, Heavy const& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.piece < b.piece;
    });
    auto loads = std::vector<std::size_t>(static_cast<std::size_t>(servers), 0);
    for (auto const& heavy : heaviest_first) {
      auto const least = std::min_element(loads.begin(), loads.end());  // the first of equals
      *least += heavy.bytes;
      pieces[heavy.piece].server = static_cast<int>(least - loads.begin());
    }
  }
};

}  // namespace chorale::placement
