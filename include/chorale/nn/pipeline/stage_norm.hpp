// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/networks/graph.hpp>
#include <chorale/nn/pipeline/messages.hpp>
#include <chorale/nn/pipeline/section.hpp>
#include <chorale/nn/pipeline/stage_variables.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace chorale::nn::graph {

/// The sum of the squares of all gradients of a network, where each stage has the gradients of its sections. It follows
/// the tree of the whole plan, so that it has the bits of one device. A variable counts at the section that owns it.
template <class Net, class D> class StageNorm {
 public:
  /// ends      of all sections, see cut_of
  explicit StageNorm(std::vector<int> ends) : ends_{std::move(ends)} {}

  /// Numbers of all sections that norm_of() takes.
  std::size_t size() const {
    auto sum = std::size_t{0};
    for (int x = 0; x < count_sections(); ++x) sum += SquareTree::most_nodes(lines_of(x).size());
    return sum;
  }

  /// Writes the numbers of a stage's sections; other numbers do not change.
  ///
  /// variables, planned   of the stage
  /// in_norm              called as in_norm(i): false for variables of the plan that count as zeros
  template <class InNorm>
  void write_squares(pipelines::StageSchedule const& schedule, StageVariables const& variables,
                     Span<PlannedVariable const> planned, Span<float const> gradients, Span<double> numbers,
                     InNorm&& in_norm) const {
    auto const each_owned = [&](int x, auto&& f) {
      for (std::size_t i = 0; i < planned.size(); ++i)
        if (variables.owner[i] == x) f(i);
    };
    auto first = std::size_t{0};
    for (int x = count_sections(); x-- > 0;) {
      auto const lines = lines_of(x);
      if (schedule.owns(x) && lines.size() > 0) {
        auto part     = Range{gradients.size(), 0};
        auto left_out = std::vector<Range>{};
        each_owned(x, [&](std::size_t i) {
          part.begin = std::min(part.begin, planned[i].offset);
          part.end   = std::max(part.end, planned[i].offset + plan::aligned(planned[i].size));
        });
        each_owned(x, [&](std::size_t i) {
          auto const begin = planned[i].offset - part.begin;
          if (!in_norm(i)) left_out.push_back({begin, begin + plan::aligned(planned[i].size)});
        });
        std::ranges::sort(left_out, {}, &Range::begin);
        auto const own = gradients.subspan(part.begin, part.size());
        auto to        = first;
        SquareTree::each_node(lines, [&](SquareTree::Node node) {
          numbers[to++] = SquareTree::sum(own, {node.first - lines.begin, node.level}, left_out);
        });
      }
      first += SquareTree::most_nodes(lines.size());
    }
  }

  /// The sum of the squares of all gradients, from what all stages have written.
  double norm_of(Span<double const> numbers) const {
    struct Given {
      SquareTree::Node node;
      double value;
    };
    auto all   = std::vector<Given>{};
    auto first = std::size_t{0};
    for (int x = count_sections(); x-- > 0;) {
      auto from = first;
      SquareTree::each_node(lines_of(x), [&](SquareTree::Node node) { all.push_back({node, numbers[from++]}); });
      first += SquareTree::most_nodes(lines_of(x).size());
    }
    auto next        = std::size_t{0};
    auto const lines = nn::plan_of<Net>.body().size() / SquareTree::line;
    return SquareTree::sum_of(
        lines, SquareTree::root(lines),
        [&](SquareTree::Node node) { return next < all.size() && all[next].node == node; },
        [&] { return all[next++].value; });
  }

 private:
  int count_sections() const { return static_cast<int>(ends_.size()); }
  /// The lines of the variables that a section owns, in the body of the network's plan: lines of later sections come
  /// first.
  Range lines_of(int x) const {
    auto part         = Range{nn::plan_of<Net>.elements, 0};
    auto const& whole = whole_of<Net, D>();
    for (std::size_t v = 0; v < whole.variables.size(); ++v) {
      if (whole.section_of(ends_, whole.variables[v].call) != x) continue;
      auto const& planned = nn::plan_of<Net>.variables[v];
      part.begin          = std::min(part.begin, planned.offset);
      part.end            = std::max(part.end, planned.offset + plan::aligned(planned.size));
    }
    if (part.end == 0) return {};
    return {(part.begin - plan::header) / SquareTree::line, (part.end - plan::header) / SquareTree::line};
  }

  std::vector<int> ends_;  // of all sections
};

}  // namespace chorale::nn::graph
