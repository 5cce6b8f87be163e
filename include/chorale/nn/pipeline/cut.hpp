// SPDX-License-Identifier: Apache-2.0
//
// Where a network is cut in sections.
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/nn/trace/again.hpp>
#include <chorale/nn/trace/records.hpp>
#include <chorale/nn/trace/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale::nn {

/// Ends a section of a pipeline: what is called afterwards is computed by the next one. Returns x. A network that names
/// the ends of its sections names all but the last; one that names none is cut where the sections take equally long, see
/// time_of.
///
///   auto const y = nn::stage_ends_after(encoder(x));
///   return nn::outputs<Words>(decoder(y));
template <class D, class O> constexpr Tensor<D, O> stage_ends_after(Tensor<D, O> x) {
  x.trace->cuts.push_back(static_cast<int>(x.trace->calls.size()));
  return x;
}

}  // namespace chorale::nn

namespace chorale::nn::graph {

/// What keeps a network from being cut in so many sections.
enum class CutFlaw { none, few_calls, named_others, no_variables };

/// The sections of a network: section x has the calls [ends[x-1], ends[x]).
struct Cut {
  std::vector<int> ends;
  CutFlaw flaw = CutFlaw::none;
};

/// The time of a call in a micro-batch of two rows, with its part of the update in a step of four of them. The unit is
/// the time of one product of a row, forward and backward, in both rows. An element of a variable takes 8 for the
/// update, where Adam moves 28 bytes, and 4 more where the call multiplies by it, as its gradient is read and written
/// there; a table that is looked up has no products.
///
/// source    one core of an EPYC with AVX-512: 50 products in a nanosecond, 3.7 ns for the update of an element, 0.5 ns
///           for adding to its gradient
constexpr std::size_t time_of(CallRecord const& call) {
  auto const multiplies = 2 * call.products >= call.elements;
  return call.products + (multiplies ? 12 : 8) * call.elements + 1;  // 1: calls that have neither
}

/// Cuts a network in sections: as the user has named, or so that the longest time of a section is as short as it can be;
/// among these ends the nearest to equal parts.
constexpr Cut cut_of(Records const& g, Span<int const> named, int sections) {
  auto cut         = Cut{};
  auto const calls = static_cast<int>(g.calls.size());
  auto const check = [&] {
    auto begin = 0;
    for (auto const end : cut.ends) {
      auto has_variables = false;
      for (auto c = begin; c < end; ++c) has_variables = has_variables || g.calls[at(c)].uses > 0;
      if (!has_variables) cut.flaw = CutFlaw::no_variables;
      begin = end;
    }
  };
  if (calls < sections) return {{}, CutFlaw::few_calls};
  if (!named.empty()) {
    if (static_cast<int>(named.size()) != sections - 1) return {{}, CutFlaw::named_others};
    for (auto const end : named) cut.ends.push_back(end);
    cut.ends.push_back(calls);
    check();
    return cut;
  }
  // Calls with variables begin blocks, in which nothing is cut, so that each section has variables.
  auto first  = std::vector<int>{};          // call of each block, and the end of all
  auto before = std::vector<std::size_t>{};  // times of all blocks before each
  auto sum    = std::size_t{0};
  for (auto c = 0; c < calls; ++c) {
    if (g.calls[at(c)].uses > 0) {
      before.push_back(before.empty() ? 0 : sum);
      first.push_back(c);
    }
    sum += time_of(g.calls[at(c)]);
  }
  auto const blocks = static_cast<int>(first.size());
  if (blocks < sections) return {{}, CutFlaw::no_variables};
  first.push_back(calls), before.push_back(sum);
  auto const time   = [&](int from, int to) { return before[at(to)] - before[at(from)]; };
  /// The first block of the last `count` sections, if these have all that fits.
  auto const begins = [&](int count, std::size_t most) {
    auto from = blocks;
    for (auto end = blocks; count-- > 0; end = from)
      while (from > 0 && time(from - 1, end) <= most) --from;
    return from;
  };
  auto low = std::size_t{0}, high = sum;  // the smallest number for which all fits
  while (low < high) {
    auto const middle = low + (high - low) / 2;
    if (begins(sections, middle) == 0) high = middle;
    else low = middle + 1;
  }
  auto begin = 0;
  for (int x = 0; x + 1 < sections; ++x) {
    auto const left  = sections - x - 1;
    auto const ideal = sum / at(sections) * at(x + 1);
    auto end         = std::max(begin + 1, begins(left, low));
    auto const apart = [&](int e) { return before[at(e)] > ideal ? before[at(e)] - ideal : ideal - before[at(e)]; };
    for (auto e = end; e <= blocks - left && time(begin, e) <= low; ++e)
      if (apart(e) < apart(end)) end = e;
    cut.ends.push_back(first[at(end)]);
    begin = end;
  }
  cut.ends.push_back(calls);
  return cut;
}

/// Says why a network cannot be cut. A function, as clang abandons a class with a failed static_assert.
template <CutFlaw flaw> constexpr bool report_cut() {
  static_assert(flaw != CutFlaw::few_calls,
                "chorale: this network has fewer calls of layers than the pipeline has "
                "sections. Use fewer stages, or fewer chunks. See docs/43-pipelines.md");
  static_assert(flaw != CutFlaw::named_others,
                "chorale: this network names the ends of its sections by "
                "nn::stage_ends_after, but not one fewer than the pipeline has sections: stages times chunks. See "
                "docs/43-pipelines.md");
  static_assert(
      flaw != CutFlaw::no_variables,
      "chorale: a section of this pipeline has no variables, so its stage "
      "would learn nothing. Use fewer stages, or name the ends by nn::stage_ends_after. See docs/43-pipelines.md");
  return flaw == CutFlaw::none;
}

}  // namespace chorale::nn::graph
