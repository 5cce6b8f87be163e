// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/tensor/whole_plan.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale::detail {

/// The squared norm of gradients of which variables are split over ranks. Those that every rank has count once.
///
/// cost    one message of a double; exact, one of a double for each 16 numbers of the split variables, or, where a part
///         has no multiple of 16 neighbours, of a double for each number. It keeps its memory from step to step
class SplitNorm {
 public:
  /// M         the Mesh, and the rank in it
  /// exact     the bits of SquareTree over the whole variables, laid out as on one device
  /// counts    counts(i) is true if variable i is in the norm
  /// add_up    adds up doubles over the ranks with the same rows
  template <class M, bool exact, class Counts, class AddUp>
  double of(Gradients const& g, Rank rank, Counts&& counts, AddUp&& add_up) {
    if constexpr (exact) return of_lines<M>(g, rank, counts, add_up);
    else {
      auto mirrored = 0.0;
      auto split    = std::array<double, 1>{};
      for (std::size_t i = 0; i < g.plan.size(); ++i) {
        if (!counts(i)) continue;
        expect_dense(g.plan[i]);
        auto const squares = SquareTree::sum(g[i]);
        if (g.plan[i].spec.split.parts == 1) mirrored += squares;
        else if (is_owner<M>(g.plan[i].spec.split, rank)) split[0] += squares;
      }
      add_up(Span<double>{split});
      return mirrored + split[0];
    }
  }

 private:
  static constexpr std::size_t line = SquareTree::line;

  /// True if no rank with a smaller number, and the same rows, has the same part.
  template <class M>
  static bool is_owner(Split const& split, Rank rank) {
    auto const at = M::coordinates(rank);
    for (std::size_t a = 0; a < M::axes; ++a)
      if (at[a] != 0 && M::names[a] != split.along && M::names[a] != M::data) return false;
    return true;
  }
  static void expect_dense(PlannedVariable const& v) {
    CHORALE_EXPECTS(!v.spec.by_rows || v.spec.split.parts == 1,
                    "global_clipnorm takes the norm of all gradients, but that of " +
                        std::string{std::string_view{v.name}} + " is rows of a table that " +
                        std::to_string(v.spec.split.parts) + " ranks have parts of: train without it");
  }

  /// Squares are added up by lines of 16 numbers of the whole variables, then along the tree above these lines.
  template <class M, class Counts, class AddUp>
  double of_lines(Gradients const& g, Rank rank, Counts& counts, AddUp& add_up) {
    if (wholes_.empty() || of_ != g.plan.data()) {
      wholes_.assign(1, WholePlan{g.plan});
      of_ = g.plan.data();
    }
    auto const& whole = wholes_[0];
    auto const lines  = SquareTree::lines(whole.body());
    sums_.assign(std::bit_ceil(std::max<std::size_t>(lines, 1)), 0.0);
    sent_.clear();
    each_dense(g, counts, [&](std::size_t i) {
      auto const& spec = g.plan[i].spec;
      if (spec.split.parts == 1) {
        auto const first = whole.variables()[i].slot_offset() / line;
        auto const n     = g[i].size() / line;
        for (std::size_t k = 0; k < n; ++k) sums_[first + k] = SquareTree::of_line(g[i].data() + k * line);
        if (n * line != g[i].size()) sums_[first + n] = SquareTree::sum(g[i], {n, 0});
      } else {
        send_squares<M>(g[i], spec, rank);
      }
    });
    add_up(Span<double>{sent_});
    auto next = sent_.begin();
    each_dense(g, counts, [&](std::size_t i) {
      auto const& spec = g.plan[i].spec;
      if (spec.split.parts == 1) return;
      auto const runs  = PartRuns{spec};
      auto const first = whole.variables()[i].slot_offset() / line;
      for (std::size_t k = 0; k < SquareTree::lines(runs.size()); ++k) {
        if (runs.run() % line == 0) {
          sums_[first + k] = *next++;
        } else {
          sums_[first + k] = SquareTree::of_squares(&*next);
          next += line;
        }
      }
    });
    for (auto n = sums_.size() / 2; n != 0; n /= 2)
      for (std::size_t i = 0; i < n; ++i) sums_[i] = sums_[2 * i] + sums_[2 * i + 1];
    return sums_[0];
  }

  template <class Counts, class F>
  static void each_dense(Gradients const& g, Counts& counts, F&& f) {
    for (std::size_t i = 0; i < g.plan.size(); ++i) {
      if (!counts(i)) continue;
      expect_dense(g.plan[i]);
      if (!g.plan[i].spec.by_rows) f(i);
    }
  }

  /// Appends the sum of each line that one part has, or, where lines have numbers of several parts, the square of each
  /// number; zeros for what other ranks have.
  template <class M>
  void send_squares(Span<float const> mine, VariableSpec const& spec, Rank rank) {
    auto const runs  = PartRuns{spec};
    auto const part  = static_cast<std::size_t>(M::coordinate(rank, spec.split.along));
    auto const first = sent_.size();
    auto const whole = SquareTree::lines(runs.size());
    auto const lined = runs.run() % line == 0;
    sent_.resize(first + (lined ? whole : whole * line), 0.0);
    if (!is_owner<M>(spec.split, rank)) return;
    runs.each(part, [&](std::size_t in_whole, std::size_t in_part, std::size_t n) {
      if (lined)
        for (std::size_t k = 0; k < n / line; ++k)
          sent_[first + in_whole / line + k] = SquareTree::of_line(mine.data() + in_part + k * line);
      else
        for (std::size_t k = 0; k < n; ++k)
          sent_[first + in_whole + k] = static_cast<double>(mine[in_part + k]) * static_cast<double>(mine[in_part + k]);
    });
  }

  PlannedVariable const* of_ = nullptr;                                    // the plan that wholes_ was made from
  std::vector<WholePlan> wholes_;                                          // one, when it is known
  std::vector<double> sums_, sent_;                                        // of the lines of all variables; of the split ones
};

}  // namespace chorale::detail
