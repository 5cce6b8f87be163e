// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/placement/sharded.hpp>
#include <chorale/placement/variable_piece.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::placement {

/// Decides in how many pieces a variable is cut, and along which axis. See FixedShards, MinSize, MaxSize.
template <class P>
concept Partitioner = requires(VariableShape const& shape) {
  { P::axis } -> std::convertible_to<int>;
  { P::shards(shape) } -> std::same_as<std::size_t>;  // 1 to the rows along the axis
};

/// n pieces; fewer where the variable has fewer rows along the axis.
///
/// source  tf.distribute.experimental.partitioners.FixedShardsPartitioner; tf.compat.v1.fixed_size_partitioner for the
///         axis
template <std::size_t n, int along = 0> struct FixedShards {
  static_assert(n >= 1 && along >= 0,
                "chorale: FixedShards<n, axis> cuts a variable in n pieces. n is at least 1, and "
                "the axis at least 0");
  static constexpr int axis = along;
  static constexpr std::size_t shards(VariableShape const& shape) {
    return std::clamp<std::size_t>(n, 1, std::max<std::size_t>(shape.extent(axis), 1));
  }
};

/// The most pieces that all have at least `least_bytes`, but never more than max_shards. A variable that is smaller by
/// itself stays whole.
///
/// source  tf.distribute.experimental.partitioners.MinSizePartitioner, which divides bytes and not rows, so that its
///         last pieces can be smaller
template <std::size_t least_bytes, std::size_t max_shards, int along = 0> struct MinSize {
  static_assert(max_shards >= 1 && along >= 0,
                "chorale: MinSize<bytes, max_shards, axis> makes 1 to max_shards "
                "pieces. max_shards is at least 1, and the axis at least 0");
  static constexpr int axis = along;
  static constexpr std::size_t shards(VariableShape const& shape) {
    auto const row  = std::max<std::size_t>(shape.outer(axis) * shape.inner(axis) * shape.element_bytes, 1);
    auto const rows = std::max<std::size_t>(least_bytes / row + (least_bytes % row != 0), 1);
    return std::clamp<std::size_t>(shape.extent(axis) / rows, 1, max_shards);
  }
};

/// The fewest pieces that all have at most `most_bytes`; pieces of one row where a row alone has more.
///
/// source  tf.distribute.experimental.partitioners.MaxSizePartitioner
template <std::size_t most_bytes, int along = 0> struct MaxSize {
  static_assert(most_bytes >= 1 && along >= 0,
                "chorale: MaxSize<bytes, axis> makes pieces of at most so many bytes. "
                "They are at least 1, and the axis at least 0");
  static constexpr int axis = along;
  static constexpr std::size_t shards(VariableShape const& shape) {
    auto const row  = std::max<std::size_t>(shape.outer(axis) * shape.inner(axis) * shape.element_bytes, 1);
    auto const rows = std::max<std::size_t>(most_bytes / row, 1);
    auto const all  = shape.extent(axis);
    return std::max<std::size_t>(all / rows + (all % rows != 0), 1);
  }
};

/// Cuts variables in pieces, then deals the pieces of all of them out to servers.
///
///   Partitioned<FixedShards<3>>                             three pieces each, round robin
///   Partitioned<MaxSize<(64 << 20)>, GreedyByBytes>         at most 64 MiB each, by bytes
///   Partitioned<FixedShards<3, 1>>                          along axis 1
///
/// A variable without the axis stays whole: a bias under axis 1. An axis that no variable has is refused: by the
/// compiler in layout_of, by BadArgument in lay_out().
///
/// keeps   pieces cover their variable in order and differ by at most one row, the first are the larger ones; none is
///         empty, but for a variable without elements
/// cost    constant for each piece
/// throws  BadArgument when no variable has the axis, or there would be more than max_pieces
/// source  tf.distribute.experimental.partitioners, for every axis
template <class P, class Servers = RoundRobin> struct Partitioned : Central {
  static_assert(Partitioner<P>,
                "chorale: the first argument of Partitioned says how a variable is cut. Write "
                "FixedShards<n>, MinSize<bytes, max_shards> or MaxSize<bytes>");
  static_assert(Sharding<Servers>,
                "chorale: the second argument of Partitioned says which server gets which piece. "
                "Write RoundRobin or GreedyByBytes");

  static constexpr std::size_t max_pieces = std::size_t{1} << 26;  // 2 GiB of pieces

  Servers servers{};  // deals out the pieces

  static constexpr bool has_axis(VariableShape const& variable) { return P::axis < variable.rank; }

  /// True if any variable has the axis, or if the list is empty.
  static constexpr bool applies_to(Span<VariableShape const> variables) {
    return variables.empty() || std::any_of(variables.begin(), variables.end(), has_axis);
  }

  constexpr std::vector<Piece> cut(Span<VariableShape const> variables) const {
    CHORALE_EXPECTS(applies_to(variables), "none of " + std::to_string(variables.size()) + " variables, the first is " +
                                               std::string{std::string_view{variables[0].name}} + ", has the axis " +
                                               std::to_string(P::axis) + " that they are to be cut along");
    auto count = std::size_t{0};
    for (auto const& variable : variables) {
      auto const more = shards(variable);
      CHORALE_EXPECTS(more <= max_pieces - count,
                      "variable " + std::string{std::string_view{variable.name}} + " makes " + std::to_string(more) +
                          " pieces, after " + std::to_string(count) + " of those before it; a plan has at most " +
                          std::to_string(max_pieces));
      count += more;
    }
    auto pieces = std::vector<Piece>{};
    pieces.reserve(count);
    for (std::size_t v = 0; v < variables.size(); ++v) {
      auto const axis = has_axis(variables[v]) ? P::axis : 0;
      auto const n    = shards(variables[v]);
      for (std::size_t i = 0; i < n; ++i) pieces.push_back({v, layout(variables[v], i, n, axis).along, axis});
    }
    return pieces;
  }

  constexpr void assign(Span<Piece> pieces, Span<VariableShape const> variables, int n) const {
    servers.assign(pieces, variables, n);
  }

 private:
  static constexpr std::size_t shards(VariableShape const& variable) {
    return has_axis(variable) ? P::shards(variable) : 1;
  }
};

}  // namespace chorale::placement
