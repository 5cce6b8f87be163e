// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/reduce.hpp>
#include <chorale/reduce/schedule_engine.hpp>

#include <bit>
#include <cstddef>

namespace chorale {
namespace detail {

/// A binary tree of ranks: the children of r are 2r + 1 on the left and 2r + 2 on the right. Messages go up, then down.
struct BinaryTree {
  static constexpr int level(Rank rank) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(rank) + 1U)) - 1;
  }
  static constexpr int steps(int ranks) { return 4 * level(ranks - 1); }  // two children to each level, up and down

  /// chunk   the chunk that this tree reduces
  static constexpr Step step(Rank rank, int ranks, int s, int chunk) {
    auto const half  = steps(ranks) / 2;
    bool const up    = s < half;
    auto const turn  = up ? s : 2 * half - 1 - s;  // down is up in reverse
    auto const depth = half / 2 - turn / 2;        // level of the children whose turn it is
    auto const side  = 1 + turn % 2;               // 1: on the left, 2: on the right
    auto const one   = Chunks::one(chunk);
    if (rank > 0 && level(rank) == depth && (rank - 1) % 2 == side - 1) {
      auto const parent = (rank - 1) / 2;
      return up ? Step{.to = parent, .send = one} : Step{.from = parent, .receive = one};
    }
    auto const child = 2 * rank + side;
    if (level(rank) + 1 != depth || child >= ranks) return {};
    return up ? Step{.from = child, .receive = one, .fold = Fold::mine_first} : Step{.to = child, .send = one};
  }
};

}  // namespace detail

/// All-reduce over a binary tree: sums rise to rank 0, and the result comes down the same way.
///
///   P = 6           0                 up      step 0   3 -> 1, 5 -> 2
///                 /   \                       step 1   4 -> 1
///               1       2                     step 2   1 -> 0
///              / \     /                      step 3   2 -> 0
///             3   4   5               down    steps 4 to 7: steps 3 to 0, reversed
///
/// cost    2 floor(log2 P) messages that must follow one another; an inner rank sends 3 S bytes, once up and twice down
/// order   a rank's own value, then the sum of its left branch, then the sum of its right branch
struct TreeAllReduce : ScheduledAllReduce<TreeAllReduce> {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    auto const sent = ranks == 1 ? 0 : ranks == 2 ? 1 : ranks <= 4 ? 2 : 3;
    return {.steps = 2 * detail::BinaryTree::level(ranks - 1), .bytes = static_cast<std::size_t>(sent) * bytes};
  }

  static constexpr int chunks(int) { return 1; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return detail::BinaryTree::steps(ranks); }
  static constexpr Step step(Rank rank, int ranks, int s) { return detail::BinaryTree::step(rank, ranks, s, 0); }
};

/// All-reduce over two binary trees at once, each for one half of x: an inner rank of one is a leaf of the other.
///
///   P = 6           0                        5
///                 /   \                    /   \         the second tree is the first one with ranks
///               1       2                4       3       counted backwards
///              / \     /                / \     /
///             3   4   5                2   1   0
///             first half of x          second half
///
/// cost    2 floor(log2 P) messages that must follow one another; no rank sends more than 2 S bytes, as around a ring
/// order   in each tree, a rank's own value, then the sum of its left branch, then the sum of its right branch
/// source  Sanders, Speck & Träff, Parallel Computing 35, 2009
struct DoubleTreeAllReduce : ScheduledAllReduce<DoubleTreeAllReduce> {
  static constexpr Cost cost(int ranks, std::size_t bytes) {
    auto const halves = ranks == 1 ? 0 : ranks == 2 ? 2 : ranks <= 4 ? 3 : 4;
    return {.steps = 2 * detail::BinaryTree::level(ranks - 1), .bytes = static_cast<std::size_t>(halves) * bytes / 2};
  }

  static constexpr int chunks(int) { return 2; }
  static constexpr int widest(int) { return 1; }
  static constexpr int steps(int ranks) { return 2 * detail::BinaryTree::steps(ranks); }

  static constexpr Step step(Rank rank, int ranks, int s) {  // the trees take turns
    if (s % 2 == 0) return detail::BinaryTree::step(rank, ranks, s / 2, 0);
    auto const mirrored = [&](Rank r) { return r == nobody ? nobody : ranks - 1 - r; };
    auto step           = detail::BinaryTree::step(mirrored(rank), ranks, s / 2, 1);
    step.to             = mirrored(step.to);
    step.from           = mirrored(step.from);
    return step;
  }
};

}  // namespace chorale
