// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/bucket.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace chorale::detail {

/// Where the buckets of gradients end under R: where R says, or as the plan has them, with a small first one.
///
/// planned    the plan's ends
/// elements   of the gradients
template <class R>
constexpr std::vector<std::size_t> bucket_ends(Span<PlannedVariable const> variables, Span<std::size_t const> planned,
                                               std::size_t elements) {
  auto layers = std::vector<std::size_t>{};  // a layer ends where the next one begins
  for (std::size_t i = 0; i < variables.size(); ++i)
    if (!variables[i].spec.by_rows && (i == 0 || variables[i - 1].layer != variables[i].layer))
      layers.push_back(variables[i].offset);
  if constexpr (CutsBuckets<R>) {
    std::erase_if(layers, [](std::size_t begin) { return begin <= plan::header; });
    std::ranges::sort(layers);
    layers.push_back(elements);
    return R::cut::ends(elements, layers);
  } else {
    return with_small_first(planned, layers);
  }
}

/// Returns the ends for a buffer that begins and ends within the gradients; buckets without elements are left out.
///
/// from, to   of the buffer, in the gradients
constexpr std::vector<std::size_t> clipped(Span<std::size_t const> ends, std::size_t from, std::size_t to) {
  auto all = std::vector<std::size_t>{};
  for (auto const end : ends) {
    auto const cut = std::clamp(end, from, to) - from;
    if (cut > (all.empty() ? 0 : all.back())) all.push_back(cut);
  }
  return all;
}

}  // namespace chorale::detail
