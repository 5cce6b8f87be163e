// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace chorale {

/// Sums of squares along one fixed binary tree over lines of 16 numbers, in double. Several ranks that each have some of
/// the lines get, from the sums at their nodes, the bits that one rank gets from all numbers.
///
///   level 2                 *                   lines past the end count as zeros, so that any number of lines will do
///   level 1          *             *
///   level 0       *     *       *     *
///   line          0     1       2     3         lines 1 to 3 are two nodes: line 1, and lines 2 and 3
class SquareTree {
 public:
  static constexpr std::size_t line = 16;

  /// The lines [first, first + 2^level).
  struct Node {
    std::size_t first = 0;
    int level         = 0;

    friend constexpr bool operator==(Node, Node) = default;
  };

  static constexpr std::size_t lines(std::size_t numbers) { return numbers / line + (numbers % line != 0); }

  /// The node above all of so many lines.
  static constexpr Node root(std::size_t lines) {
    return {0, lines < 2 ? 0 : static_cast<int>(std::bit_width(lines - 1))};
  }

  /// Calls f(node) for the fewest nodes that together cover exactly these lines, in their order.
  template <class F> static constexpr void each_node(Range lines, F&& f) {
    while (lines.begin < lines.end) {
      auto const fits  = static_cast<int>(std::bit_width(lines.size())) - 1;
      auto const level = lines.begin == 0 ? fits : std::min(fits, static_cast<int>(std::countr_zero(lines.begin)));
      f(Node{lines.begin, level});
      lines.begin += std::size_t{1} << level;
    }
  }

  /// An upper bound of the nodes of any range of so many lines.
  static constexpr std::size_t most_nodes(std::size_t lines) {
    return 2 * static_cast<std::size_t>(std::bit_width(lines));
  }

  /// Sum of the squares below a node.
  ///
  /// x         numbers of the tree, from number `from` on, at which a line begins; only the node's are read
  /// left_out  ranges of the tree, ascending, which begin and end with lines: they count as zeros
  static double sum(Span<float const> x, Node node, Span<Range const> left_out = {}, std::size_t from = 0) {
    if (node.first * line - from >= x.size()) return 0;
    if (node.level > block_level) {
      auto const below = node.level - 1;
      auto const left  = sum(x, {node.first, below}, left_out, from);
      return left + sum(x, {node.first + (std::size_t{1} << below), below}, left_out, from);
    }
    auto squares     = std::array<double, std::size_t{1} << block_level>{};
    auto const count = std::size_t{1} << node.level;
    auto const begin = node.first * line - from, end = std::min(x.size(), begin + count * line);
    auto const whole = (end - begin) / line;
    for (std::size_t i = 0; i < whole; ++i) squares[i] = of_line(x.data() + begin + i * line);
    if (whole * line != end - begin) {
      auto last = std::array<float, line>{};
      std::copy(x.data() + begin + whole * line, x.data() + end, last.begin());
      squares[whole] = of_line(last.data());
    }
    for (auto const part : left_out)
      for (auto i = std::max(part.begin, begin + from); i < std::min(part.end, end + from); i += line)
        squares[(i - begin - from) / line] = 0;
    for (auto n = count / 2; n != 0; n /= 2)
      for (std::size_t i = 0; i < n; ++i) squares[i] = squares[2 * i] + squares[2 * i + 1];
    return squares[0];
  }

  /// Sum of the squares of all numbers.
  static double sum(Span<float const> x, Span<Range const> left_out = {}) {
    return sum(x, root(lines(x.size())), left_out);
  }

  /// The sum at a node, from the sums at nodes below it or at the node itself.
  ///
  /// lines     of the tree
  /// next      called for the value of each of these nodes in turn: next(node), with the node that it has to be in
  /// is_given  is_given(node) is true if the value of that node is the next one
  template <class Given, class Next> static double sum_of(std::size_t lines, Node node, Given&& is_given, Next&& next) {
    if (node.first >= lines) return 0;
    if (is_given(node)) return next();
    auto const below = node.level - 1;
    auto const left  = sum_of(lines, {node.first, below}, is_given, next);
    return left + sum_of(lines, {node.first + (std::size_t{1} << below), below}, is_given, next);
  }

  /// Sum of the squares of a line of 16 numbers. With vectors written out, as compilers do not make them of every form
  /// of this loop.
  static double of_line(float const* x) {
    using Floats  = float __attribute__((vector_size(16)));
    using Doubles = double __attribute__((vector_size(32)));
    Floats parts[4];
    std::memcpy(parts, x, sizeof parts);
    Doubles squares[4];
    for (std::size_t i = 0; i < 4; ++i) {
      squares[i] = __builtin_convertvector(parts[i], Doubles);
      squares[i] *= squares[i];
    }
    auto const quarter = (squares[0] + squares[2]) + (squares[1] + squares[3]);
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
  }

  /// Sum of a line from the squares of its numbers.
  static double of_squares(double const* squares) {
    auto quarter = std::array<double, 4>{};
    for (std::size_t i = 0; i < 4; ++i) quarter[i] = (squares[i] + squares[8 + i]) + (squares[4 + i] + squares[12 + i]);
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
  }

 private:
  static constexpr int block_level = 6;  // 64 lines: 4 KiB of numbers, 512 bytes of sums
};

}  // namespace chorale
