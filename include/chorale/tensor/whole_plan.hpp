// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/split_variable.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chorale {

/// The places of one part of a variable in the whole variable: runs of neighbours.
///
///   shape (2, 6), split along dimension 1 into 3 parts, part 1:    . . x x . .   . . x x . .     2 runs of 2 elements
class PartRuns {
 public:
  /// of    the variable as its plan has it, with the shape of one part; it outlives this
  explicit constexpr PartRuns(VariableSpec const& of) : of_{&of} {
    auto const from = of.split.dim + (of.split.index_of == nullptr ? 0 : 1);
    for (int i = from; i < of.rank; ++i) run_ *= static_cast<std::size_t>(of.dims[static_cast<std::size_t>(i)]);
    if (of.split.index_of == nullptr) run_ /= static_cast<std::size_t>(of.split.blocks);
    auto whole = of;
    whole.dims = whole_dims(of);
    size_      = whole.size();
  }

  constexpr std::size_t run() const { return run_; }                       // elements: runs have so many, or times as many
  constexpr std::size_t size() const { return size_; }                     // of the whole variable

  /// Calls f(place in whole, place in the part, elements) for each run of a part.
  template <class F>
  constexpr void each(std::size_t part, F&& f) const {
    each_run(*of_, static_cast<int>(part), [&](Range here, std::size_t whole) { f(whole, here.begin, here.size()); });
  }

 private:
  VariableSpec const* of_;
  std::size_t run_ = 1, size_ = 0;
};

/// The layout of a network's variables before any was split over ranks: that of the same network on one device.
///
/// keeps   its variables have the names, and the order, of those of the plan that it was made from
class WholePlan {
 public:
  explicit WholePlan(Span<PlannedVariable const> parts) : variables_{parts.begin(), parts.end()} {
    auto layers = std::size_t{0};
    for (auto& v : variables_) {
      is_split_ = is_split_ || v.spec.split.parts > 1;
      v.spec.dims  = whole_dims(v.spec);
      v.spec.split = {};
      v.size       = v.spec.size();
      layers       = std::max(layers, static_cast<std::size_t>(v.layer) + 1);
    }
    auto ready = std::vector<std::size_t>(layers);
    auto ends  = std::vector<std::size_t>(variables_.size() + 1);
    sizes_     = detail::lay_out(variables_, ready, ends);
  }

  bool is_split() const { return is_split_; }                              // false: it is the plan itself
  Span<PlannedVariable const> variables() const { return variables_; }
  std::uint64_t hash() const { return detail::plan_hash(variables_); }

  /// Elements of the variables, tables included; of one slot of an optimizer; and of the dense variables.
  std::size_t values() const { return sizes_.elements + sizes_.table_elements; }
  std::size_t slot_stride() const { return values() - plan::header - plan::trailer; }
  std::size_t body() const { return sizes_.elements - plan::header - plan::trailer; }

  /// Variables in memory of values() elements.
  Variables in(Span<float> memory) const { return {memory, variables_, sizes_.table_elements}; }

 private:
  std::vector<PlannedVariable> variables_;
  detail::PlanSizes sizes_;
  bool is_split_ = false;
};

}  // namespace chorale
