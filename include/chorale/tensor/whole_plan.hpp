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

/// The layout of a network's variables before any was split over ranks, as the same network has it on one device.
///
/// keeps   its variables have the names and the order of the variables in the plan that it was made from
class WholePlan {
 public:
  explicit WholePlan(Span<PlannedVariable const> parts) : variables_{parts.begin(), parts.end()} {
    auto layers = std::size_t{0};
    for (auto& v : variables_) {
      is_split_    = is_split_ || v.spec.split.parts > 1;
      v.spec.dims  = whole_dims(v.spec);
      v.spec.split = {};
      v.size       = v.spec.size();
      layers       = std::max(layers, static_cast<std::size_t>(v.layer) + 1);
    }
    auto ready = std::vector<std::size_t>(layers);
    auto ends  = std::vector<std::size_t>(variables_.size() + 1);
    sizes_     = detail::lay_out(variables_, ready, ends);
  }

  bool is_split() const { return is_split_; }  // false: it is the plan itself
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
