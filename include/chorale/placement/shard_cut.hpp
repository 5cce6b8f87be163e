// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/placement/placed.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

namespace chorale::placement {

/// Elements of flat memory that one rank holds, and where they lie in the rank's own memory.
struct ShardRun {
  Range range;  // of the whole
  int rank       = 0;
  std::size_t at = 0;  // in what the rank holds

  friend constexpr bool operator==(ShardRun const&, ShardRun const&) = default;
};

/// Flat memory cut into parts. Each part is cut separately for all ranks, so that every rank has its share of every
/// part. A part is one range, or several that count as one.
///
///   whole     |      part 0       |   part 1  |
///   rank 0    |*******            |****       |        its own memory: its shard of part 0, then of part 1
///   rank 1    |       ******      |    ****   |
///   rank 2    |             ******|        ***|
///
/// keeps   the shards of a part are cut by Shard. The parts are disjoint and cover the whole
class ShardCut {
 public:
  ShardCut() = default;

  /// Cuts the whole as one part.
  ShardCut(std::size_t elements, int world) : ShardCut{{{Range{0, elements}}}, world} {}

  /// parts     the ranges of each, ascending, whose ends are multiples of plan::align
  /// throws    BadArgument when the parts do not cover the memory from its first element
  ShardCut(std::vector<std::vector<Range>> const& parts, int world)
      : parts_{parts.size()}, world_{world}, ends_(parts.size() * ranks()), at_(ends_.size()), held_(ranks(), 0) {
    for (std::size_t p = 0; p < parts_; ++p) {
      auto size = std::size_t{0};
      for (auto const range : parts[p]) size += range.size();
      for (int rank = 0; rank < world; ++rank) {
        auto const own        = Shard{rank, world}.of(size);
        auto& held            = held_[static_cast<std::size_t>(rank)];
        ends_[index(p, rank)] = own.end;
        at_[index(p, rank)]   = held;
        auto before           = std::size_t{0};  // elements of the part before the range
        for (auto const range : parts[p]) {
          auto const begin = std::clamp(own.begin, before, before + range.size());
          auto const end   = std::clamp(own.end, before, before + range.size());
          if (begin != end) runs_.push_back({{range.begin + begin - before, range.begin + end - before}, rank, held});
          held += end - begin;
          before += range.size();
        }
      }
      elements_ += size;
    }
    std::ranges::sort(runs_, {}, [](ShardRun const& run) { return run.range.begin; });
    auto covered = std::size_t{0};
    for (auto const& run : runs_) {
      CHORALE_EXPECTS(run.range.begin == covered, "parts of memory that is cut for ranks cover " +
                                                      std::to_string(covered) + " elements, and go on at element " +
                                                      std::to_string(run.range.begin));
      covered = run.range.end;
    }
  }

  std::size_t parts() const { return parts_; }
  std::size_t elements() const { return elements_; }  // of the whole
  int world() const { return world_; }

  /// Elements that a rank holds.
  std::size_t held(int rank) const { return held_[static_cast<std::size_t>(rank)]; }
  /// Where the shard of each rank ends within a part, as ScheduleExecution and DirectOperation take it.
  Span<std::size_t const> ends(std::size_t part) const {
    return Span<std::size_t const>{ends_}.subspan(part * ranks(), ranks());
  }
  /// The shard of a rank within a part.
  Range shard(std::size_t part, int rank) const {
    auto const all = ends(part);
    auto const r   = static_cast<std::size_t>(rank);
    return {r == 0 ? 0 : all[r - 1], all[r]};
  }
  /// Where the shard of a part begins in what a rank holds.
  std::size_t at(std::size_t part, int rank) const { return at_[index(part, rank)]; }

  /// What all ranks hold, in the order of the whole.
  Span<ShardRun const> runs() const { return runs_; }
  /// What one rank holds, in that order.
  std::vector<ShardRun> runs_of(int rank) const {
    auto mine = std::vector<ShardRun>{};
    std::ranges::copy_if(runs_, std::back_inserter(mine), [rank](ShardRun const& run) { return run.rank == rank; });
    return mine;
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(world_); }
  std::size_t index(std::size_t part, int rank) const { return part * ranks() + static_cast<std::size_t>(rank); }

  std::size_t parts_ = 0, elements_ = 0;
  int world_ = 1;
  std::vector<std::size_t> ends_, at_;  // (parts, ranks)
  std::vector<std::size_t> held_;       // of each rank
  std::vector<ShardRun> runs_;
};

/// Numbers that squared_norm() writes for one run.
inline std::size_t nodes_in(Range run) {
  auto nodes = std::size_t{0};
  SquareTree::each_node({run.begin / SquareTree::line, run.end / SquareTree::line}, [&](SquareTree::Node) { ++nodes; });
  return nodes;
}

/// Sum of the squares of values that are cut for ranks, from what each has written with squared_norm() for its runs, in
/// the order of the whole: the bits of squared_norm() of mirrored values.
///
/// read      a number for each rank: scratch
/// numbers   called as numbers(rank): what that rank has written
template <class Numbers> double squared_norm_of_shards(ShardCut const& cut, Span<std::size_t> read, Numbers&& numbers) {
  auto const lines = SquareTree::lines(cut.elements());
  auto const runs  = cut.runs();
  auto next        = std::size_t{0};  // run
  auto rest        = Range{};         // lines of the run before that are not taken
  std::ranges::fill(read, std::size_t{0});
  auto const next_node = [&] {
    while (rest.size() == 0 && next < runs.size()) {
      auto const range = runs[next++].range;
      rest             = {range.begin / SquareTree::line, range.end / SquareTree::line};
    }
    auto first = SquareTree::Node{};
    auto found = false;
    SquareTree::each_node(rest, [&](SquareTree::Node node) {
      if (!found) first = node;
      found = true;
    });
    return first;
  };
  auto due = next_node();
  return SquareTree::sum_of(
      lines, SquareTree::root(lines), [&](SquareTree::Node node) { return node == due; },
      [&] {
        auto const rank  = runs[next - 1].rank;
        auto const value = numbers(rank)[read[static_cast<std::size_t>(rank)]++];
        rest.begin += std::size_t{1} << due.level;
        due = next_node();
        return value;
      });
}

}  // namespace chorale::placement
