// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/split_variable.hpp>
#include <chorale/tensor/square_tree.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/tensor/whole_plan.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::detail {

/// The squared norm of gradients of which variables are split over ranks, and of which ranks may have a shard alone.
/// Variables, and parts of them, that several ranks have count once.
///
/// cost    one message of a double; exact, one of a double for each 16 numbers of the split variables, or, where a part
///         has no multiple of 16 neighbours, of a double for each number; in shards, of the other variables as well. It
///         keeps its memory from step to step
class SplitNorm {
 public:
  /// M         the Mesh, and the rank in it
  /// exact     the bits of SquareTree over the whole variables, laid out as on one device
  /// shard     elements of the body whose sums this rank has; nobody has others of its part
  /// counts    counts(i) is true if variable i is in the norm
  /// add_up    adds up doubles over the ranks with the same rows; in shards, over all ranks
  template <class M, bool exact, class Counts, class AddUp>
  double of(Gradients const& g, Rank rank, std::optional<Range> shard, Counts&& counts, AddUp&& add_up) {
    if constexpr (exact) return of_lines<M>(g, rank, shard, counts, add_up);
    else {
      auto here   = 0.0;  // of what each rank has
      auto others = std::array<double, 1>{};
      for (std::size_t i = 0; i < g.plan.size(); ++i) {
        if (!counts(i)) continue;
        expect_dense(g.plan[i]);
        auto const mine    = own(g.plan[i], shard);
        auto const squares = SquareTree::sum(g[i].subspan(mine.begin, mine.size()));
        if (!is_told(g.plan[i].spec, shard)) here += squares;
        else if (is_owner<M>(g.plan[i].spec.split, rank)) others[0] += squares;
      }
      add_up(Span<double>{others});
      return here + others[0];
    }
  }

 private:
  static constexpr std::size_t line = SquareTree::line;

  /// True if no rank with a smaller number, and the same rows, has the same part.
  template <class M> static bool is_owner(Split const& split, Rank rank) {
    auto const at = M::coordinates(rank);
    for (std::size_t a = 0; a < M::axes; ++a)
      if (at[a] != 0 && M::names[a] != split.along && M::names[a] != M::data) return false;
    return true;
  }
  /// True if ranks tell each other the squares of a variable, of which not every rank has all.
  static bool is_told(VariableSpec const& spec, std::optional<Range> const& shard) {
    return shard || spec.split.parts > 1;
  }
  /// The elements of a variable that this rank has the sums of.
  static Range own(PlannedVariable const& v, std::optional<Range> const& shard) {
    if (!shard) return {0, v.size};
    auto const first = v.slot_offset(), last = first + v.size;
    auto const begin = std::clamp(shard->begin, first, last), end = std::clamp(shard->end, begin, last);
    return {begin - first, end - first};
  }
  static void expect_dense(PlannedVariable const& v) {
    CHORALE_EXPECTS(!v.spec.by_rows || v.spec.split.parts == 1,
                    "global_clipnorm takes the norm of all gradients, but that of " +
                        std::string{std::string_view{v.name}} + " is rows of a table that " +
                        std::to_string(v.spec.split.parts) + " ranks have parts of: train without it");
  }

  /// Squares are added up by lines of 16 numbers of the whole variables, then along the tree above these lines.
  template <class M, class Counts, class AddUp>
  double of_lines(Gradients const& g, Rank rank, std::optional<Range> const& shard, Counts& counts, AddUp& add_up) {
    if (of_ != g.plan.data()) look_at(g.plan);
    auto const& whole = wholes_[0];
    auto const lines  = SquareTree::lines(whole.body());
    sums_.assign(std::bit_ceil(std::max<std::size_t>(lines, 1)), 0.0);
    sent_.clear();
    each_dense(g, counts, [&](std::size_t i) {
      if (is_told(g.plan[i].spec, shard)) return send_squares<M>(g[i], i, g.plan[i].spec, own(g.plan[i], shard), rank);
      auto const first = whole.variables()[i].slot_offset() / line, n = g[i].size() / line;
      for (std::size_t k = 0; k < n; ++k) sums_[first + k] = SquareTree::of_line(g[i].data() + k * line);
      if (n * line != g[i].size()) sums_[first + n] = SquareTree::sum(g[i], {n, 0});
    });
    add_up(Span<double>{sent_});
    auto next = sent_.begin();
    each_dense(g, counts, [&](std::size_t i) {
      if (!is_told(g.plan[i].spec, shard)) return;
      auto const first = whole.variables()[i].slot_offset() / line;
      for (std::size_t k = 0; k < SquareTree::lines(whole.variables()[i].size); ++k) {
        sums_[first + k] = in_lines_[i] != 0 ? *next : SquareTree::of_squares(&*next);
        next += in_lines_[i] != 0 ? 1 : line;
      }
    });
    for (auto n = sums_.size() / 2; n != 0; n /= 2)
      for (std::size_t i = 0; i < n; ++i) sums_[i] = sums_[2 * i] + sums_[2 * i + 1];
    return sums_[0];
  }

  /// Finds the variables of which each line of the whole is in one part.
  void look_at(Span<PlannedVariable const> plan) {
    wholes_.assign(1, WholePlan{plan});
    of_ = plan.data();
    in_lines_.assign(plan.size(), 1);
    for (std::size_t i = 0; i < plan.size(); ++i)
      for (int part = 0; part < plan[i].spec.split.parts && !plan[i].spec.by_rows; ++part)
        each_run(plan[i].spec, part, [&](Range run, std::size_t first) {
          if (plan[i].spec.split.parts == 1) return;  // its last line may be short
          if (first % line != 0 || run.size() % line != 0) in_lines_[i] = 0;
        });
  }

  template <class Counts, class F> static void each_dense(Gradients const& g, Counts& counts, F&& f) {
    for (std::size_t i = 0; i < g.plan.size(); ++i) {
      if (!counts(i)) continue;
      expect_dense(g.plan[i]);
      if (!g.plan[i].spec.by_rows) f(i);
    }
  }

  /// Appends the sum of each line that one part has, or, where lines have numbers of several parts, the square of each
  /// number; zeros for what other ranks have.
  ///
  /// own     the elements of `mine` that are this rank's
  template <class M>
  void send_squares(Span<float const> mine, std::size_t variable, VariableSpec const& spec, Range own, Rank rank) {
    auto const before = sent_.size();
    auto const lines  = SquareTree::lines(wholes_[0].variables()[variable].size);
    auto const lined  = in_lines_[variable] != 0;
    sent_.resize(before + (lined ? lines : lines * line), 0.0);
    if (!is_owner<M>(spec.split, rank)) return;
    each_run(spec, M::coordinate(rank, spec.split.along), [&](Range run, std::size_t first) {
      auto const begin = std::clamp(own.begin, run.begin, run.end), end = std::clamp(own.end, begin, run.end);
      first += begin - run.begin;
      if (lined)
        for (auto k = begin; k < end; k += line)
          sent_[before + (first + k - begin) / line] =
              end - k < line ? SquareTree::sum(mine.subspan(k, end - k)) : SquareTree::of_line(mine.data() + k);
      else
        for (auto k = begin; k < end; ++k) {
          auto const x                      = static_cast<double>(mine[k]);
          sent_[before + first + k - begin] = x * x;
        }
    });
  }

  PlannedVariable const* of_ = nullptr;  // the plan that the next two were made from
  std::vector<WholePlan> wholes_;        // one, when it is known
  std::vector<char> in_lines_;           // by variable; 0: lines have several parts
  std::vector<double> sums_, sent_;      // of lines: of all variables, of split ones
};

}  // namespace chorale::detail
