// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/placement/sharded.hpp>
#include <chorale/placement/variable_piece.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::placement {

/// The server that holds each piece of each variable: the result of lay_out().
///
/// keeps   pieces are in the order of variables, then of rows; the pieces of a variable are cut along one axis,
///         are disjoint, and cover it
template <class Pieces = std::vector<Piece>, class Variables = std::vector<VariableShape>> struct Layout {
  Variables variables{};
  Pieces pieces{};
  int servers = 1;
  int slots   = 0;  // numbers of the optimizer beside each element

  constexpr VariableShape const& variable_of(Piece const& piece) const { return variables[piece.variable]; }

  /// Bytes that a piece needs on its server, its slots included.
  constexpr std::size_t bytes_of(Piece const& piece) const {
    return bytes(piece, variable_of(piece)) * (1 + static_cast<std::size_t>(slots));
  }

  /// Bytes on one server, slots included.
  constexpr std::size_t bytes_of(int server) const {
    auto sum = std::size_t{0};
    for (auto const& piece : pieces)
      if (piece.server == server) sum += bytes_of(piece);
    return sum;
  }

  /// Bytes on all servers.
  constexpr std::size_t total_bytes() const {
    auto sum = std::size_t{0};
    for (auto const& piece : pieces) sum += bytes_of(piece);
    return sum;
  }

  /// The bytes of the heaviest server over the mean of all: 1 if they are even, `servers` if one server has all.
  constexpr double imbalance() const {
    auto loads = std::vector<std::size_t>(static_cast<std::size_t>(servers), 0);
    for (auto const& piece : pieces) loads[static_cast<std::size_t>(piece.server)] += bytes_of(piece);
    auto const heaviest = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
    auto const total    = static_cast<double>(total_bytes());
    return total == 0 ? 1.0 : heaviest * servers / total;
  }

  /// Writes a table for people: one line a piece, one a server, then the sums.
  friend std::ostream& operator<<(std::ostream& out, Layout const& layout) {
    auto const box = [&layout](Piece const& piece) {  // "[0:1803, 64]"
      auto const& shape = layout.variable_of(piece);
      auto text         = std::string{"["};
      for (int axis = 0; axis < shape.rank; ++axis)
        text += (axis ? ", " : "") + (axis == piece.axis && !is_whole(piece, shape)
                                          ? std::to_string(piece.along.begin) + ":" + std::to_string(piece.along.end)
                                          : std::to_string(shape.extent(axis)));
      return text + "]";
    };
    auto names = std::size_t{0}, boxes = std::size_t{0};
    for (auto const& piece : layout.pieces) {
      names = std::max(names, std::string_view{layout.variable_of(piece).name}.size());
      boxes = std::max(boxes, box(piece).size());
    }
    auto const wide = [](std::string text, std::size_t width) {
      text.resize(std::max(text.size(), width), ' ');
      return text;
    };
    for (auto const& piece : layout.pieces)
      out << sentence("{}  {}  server {}  {} bytes\n",
                      wide(std::string{std::string_view{layout.variable_of(piece).name}}, names),
                      wide(box(piece), boxes), piece.server, layout.bytes_of(piece));
    for (int server = 0; server < layout.servers; ++server)
      out << sentence("server {}: {} bytes\n", server, layout.bytes_of(server));
    return out << sentence("{} variables, {} pieces, {} servers, {} bytes, heaviest / mean {}\n",
                           layout.variables.size(), layout.pieces.size(), layout.servers, layout.total_bytes(),
                           formatted("%.2f", layout.imbalance()));
  }
};

namespace detail {

/// Returns the pieces of a layout, cut, assigned and checked, whether the Sharding is a user's or the library's.
template <Sharding S>
constexpr std::vector<Piece> pieces_of(S const& sharding, Span<VariableShape const> variables, int servers, int slots) {
  CHORALE_EXPECTS(servers >= 1, "variables are dealt out to " + std::to_string(servers) + " servers");
  CHORALE_EXPECTS(slots >= 0, "an optimizer with " + std::to_string(slots) + " slots");
  auto room = std::numeric_limits<std::size_t>::max() / (1 + static_cast<std::size_t>(slots));
  for (auto const& variable : variables) {
    CHORALE_EXPECTS(variable.bytes() <= room, "variable " + std::string{std::string_view{variable.name}} +
                                                  ": with it the bytes of all variables, with " +
                                                  std::to_string(slots) + " slots each, do not fit into 64 bits");
    room -= variable.bytes();
  }
  auto pieces = std::vector<Piece>{};
  if constexpr (requires { sharding.cut(variables); }) {
    pieces = sharding.cut(variables);
  } else {
    for (std::size_t v = 0; v < variables.size(); ++v) pieces.push_back(whole(v, variables[v]));
  }
  sharding.assign(Span<Piece>{pieces}, variables, servers);

  auto next = std::size_t{0};
  for (std::size_t v = 0; v < variables.size(); ++v) {
    auto const name = [&] { return std::string{std::string_view{variables[v].name}}; };
    auto const axis = next < pieces.size() ? pieces[next].axis : 0;
    auto const rows = variables[v].extent(axis);
    auto covered    = std::size_t{0};
    do {
      CHORALE_EXPECTS(next < pieces.size() && pieces[next].variable == v && pieces[next].axis == axis &&
                          pieces[next].along.begin == covered && pieces[next].along.end >= covered,
                      "the pieces of variable " + name() + " cover " + std::to_string(covered) + " of " +
                          std::to_string(rows) + " rows along axis " + std::to_string(axis) +
                          ": they must follow one another");
      CHORALE_EXPECTS(pieces[next].server >= 0 && pieces[next].server < servers,
                      "a piece of variable " + name() + " is on server " + std::to_string(pieces[next].server) +
                          " of " + std::to_string(servers));
      covered = pieces[next++].along.end;
    } while (covered < rows);
    CHORALE_EXPECTS(covered == rows, "the pieces of variable " + name() + " reach row " + std::to_string(covered) +
                                         " of " + std::to_string(rows));
  }
  CHORALE_EXPECTS(next == pieces.size(),
                  std::to_string(pieces.size()) + " pieces, but the variables need " + std::to_string(next));
  return pieces;
}

template <class S, auto const& variables> constexpr bool applies() {
  if constexpr (requires { S::applies_to(variables); }) return S::applies_to(variables);
  return true;
}

template <class S, auto const& variables, int servers, int slots> constexpr auto fixed_layout() {
  static_assert(applies<S, variables>(),
                "chorale: no variable has the axis that all are to be cut along. Name an axis "
                "below the rank of at least one of them: FixedShards<n, axis>");
  if constexpr (applies<S, variables>()) {
    constexpr auto count = pieces_of(S{}, variables, servers, slots).size();
    auto const pieces    = pieces_of(S{}, variables, servers, slots);
    auto layout          = Layout<std::array<Piece, count>, std::array<VariableShape, variables.size()>>{};
    std::copy(pieces.begin(), pieces.end(), layout.pieces.begin());
    std::copy(variables.begin(), variables.end(), layout.variables.begin());
    layout.servers = servers;
    layout.slots   = slots;
    return layout;
  } else {
    return Layout<std::array<Piece, 0>, std::array<VariableShape, 0>>{};  // so that only the static_assert fails
  }
}

}  // namespace detail

/// Deals variables out to servers: pure arithmetic over shapes, the same on every rank.
///
///   auto const layout = lay_out(GreedyByBytes{}, shapes, 3);                   // at run time
///   constexpr auto& fixed = layout_of<GreedyByBytes, shapes, 3>;               // shapes: static constexpr std::array
///
/// slots   numbers that the optimizer keeps for each element: 2 for Adam. They are beside their piece and only count
/// throws  BadArgument when servers is below 1, the bytes do not fit into 64 bits, or a Sharding leaves rows out
template <Sharding S>
constexpr Layout<> lay_out(S const& sharding, Span<VariableShape const> variables, int servers, int slots = 0) {
  return {{variables.begin(), variables.end()}, detail::pieces_of(sharding, variables, servers, slots), servers, slots};
}

/// A layout as lay_out() makes it, at compile time: std::arrays of exactly the size.
template <Sharding S, auto const& variables, int servers, int slots = 0>
inline constexpr auto layout_of = detail::fixed_layout<S, variables, servers, slots>();

/// The shapes of a network's variables, in reading order.
template <std::size_t N, std::size_t Layers>
constexpr std::array<VariableShape, N> shapes_of(Plan<N, Layers> const& plan) {
  auto shapes = std::array<VariableShape, N>{};
  for (std::size_t i = 0; i < N; ++i) shapes[i] = plan.variables[i];
  return shapes;
}

/// The shapes of the variables of a model, in reading order, when the program runs.
inline std::vector<VariableShape> shapes_of(PlanView const& plan) {
  return {plan.variables.begin(), plan.variables.end()};
}

/// What a server holds, as ranges of the flat buffer that a network's plan lays out: header, padding and trailer are in
/// none of them.
///
/// planned   the plan's variables; the layout was made of their shapes
/// keeps     ascending, disjoint; ranges that touch are one
template <class Pieces, class Variables>
std::vector<Range> ranges_on(int server, Layout<Pieces, Variables> const& layout, Span<PlannedVariable const> planned) {
  CHORALE_EXPECTS(planned.size() == layout.variables.size(), "a layout of " + std::to_string(layout.variables.size()) +
                                                                 " variables for a network with " +
                                                                 std::to_string(planned.size()));
  auto ranges = std::vector<Range>{};
  for (auto const& piece : layout.pieces) {
    if (piece.server != server) continue;
    auto const offset = planned[piece.variable].offset;
    for (Range const run : runs(piece, layout.variable_of(piece)))
      ranges.push_back({offset + run.begin, offset + run.end});
  }
  std::sort(ranges.begin(), ranges.end(), [](Range a, Range b) { return a.begin < b.begin; });
  auto joined = std::vector<Range>{};
  for (Range const range : ranges) {
    if (!joined.empty() && joined.back().end == range.begin) joined.back().end = range.end;
    else joined.push_back(range);
  }
  return joined;
}

}  // namespace chorale::placement
