// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/axes.hpp>
#include <chorale/tensor/plan.hpp>

#include <array>
#include <cstddef>

namespace chorale {

/// The dims of the whole variable, where each rank along an axis has a part of it.
constexpr std::array<int, 4> whole_dims(VariableSpec const& spec) {
  auto dims    = spec.dims;
  auto& extent = dims[static_cast<std::size_t>(spec.split.dim)];
  if (spec.split.parts > 1) extent = spec.split.extent_of_whole(extent);
  return dims;
}

/// True if each rank along the data axis has a part of a variable, and the whole gradient of that part.
constexpr bool is_split_along_data(VariableSpec const& spec) {
  return spec.split.parts > 1 && spec.split.along == data_axis;
}

/// Calls f(range, first) for each range of one part of a variable, in ascending order: its numbers lie from `first` on in
/// the whole variable, one after another.
///
///   (2, 4) split at dim 1 in 2 parts            part 1 is (2, 2): [0, 2) from 2 on, [2, 4) from 6 on
///   the same in 2 blocks                        part 1: [0, 1) from 1 on, [1, 2) from 3, [2, 3) from 5, [3, 4) from 7
///
/// part      below spec.split.parts; its padding is in no range
template <class F> constexpr void each_run(VariableSpec const& spec, int part, F const& f) {
  if (spec.split.parts == 1) return f(Range{0, spec.size()}, std::size_t{0});
  auto const dim    = static_cast<std::size_t>(spec.split.dim);
  auto const extent = spec.dims[dim];
  auto const whole  = static_cast<std::size_t>(spec.split.extent_of_whole(extent));
  auto inner        = std::size_t{1};  // numbers of one index of the dimension
  for (auto d = dim + 1; d < static_cast<std::size_t>(spec.rank); ++d) inner *= static_cast<std::size_t>(spec.dims[d]);
  auto run   = Range{};
  auto first = std::size_t{0};
  for (std::size_t begin = 0, outer = 0; begin < spec.size(); ++outer)
    for (int i = 0; i < extent; ++i, begin += inner) {
      auto const in_whole = spec.split.in_whole(part, i, extent);
      if (in_whole < 0) continue;
      auto const from = (outer * whole + static_cast<std::size_t>(in_whole)) * inner;
      if (run.size() != 0 && run.end == begin && first + run.size() == from) {
        run.end += inner;
        continue;
      }
      if (run.size() != 0) f(run, first);
      run = {begin, begin + inner}, first = from;
    }
  if (run.size() != 0) f(run, first);
}

}  // namespace chorale
