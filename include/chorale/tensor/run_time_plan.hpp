// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/tensor/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace chorale {

/// A variable of a model whose variables are known only when the program runs.
struct NamedShape {
  std::string name;         // at most 96 characters; unique in the model
  std::vector<int> dims{};  // at most 4; none: a single number
  Init init  = Init::zeros;
  int fan_in = 1, fan_out = 1;  // of the Glorot and He initializers
  float momentum = 0;           // not 0: a moving average, not trained
  int layer      = -1;          // ascending; -1: one above the layer before
  bool tracked   = false;       // not trained: replicas add their changes
};

/// The plan of a model whose variables are known only when the program runs. Its layout, offsets, buckets and hash
/// equal those in the constexpr Plan of the same variables.
///
///   auto const plan = RunTimePlan{{{"amplitude", {6}}, {"exponent", {6}, Init::ones}}};
///
/// keeps   cheap to copy. Views of the plan are valid as long as a copy of it exists
class RunTimePlan {
 public:
  /// variables   in the order in which the model computes: backward usually finishes the last one first
  /// whole       false: one stage of a network has them
  ///
  /// throws      BadArgument when variables is empty, two have one name, a name or a shape does not fit, layers do not
  ///             ascend, or a tracked variable has a momentum
  explicit RunTimePlan(std::vector<NamedShape> const& variables, bool whole = true) {
    CHORALE_EXPECTS(!variables.empty(), "a model needs at least one variable");
    auto made = Made{};
    auto last = -1;  // layer of the variable before
    for (auto const& v : variables) {
      check(v, made.variables);
      CHORALE_EXPECTS(v.layer < 0 || v.layer >= last, "layers of variables ascend, but " + v.name + " is of layer " +
                                                          std::to_string(v.layer) + " after layer " +
                                                          std::to_string(last));
      last          = v.layer < 0 ? last + 1 : v.layer;
      auto spec     = VariableSpec{};
      spec.init     = v.init;
      spec.fan_in   = v.fan_in;
      spec.fan_out  = v.fan_out;
      spec.momentum = v.momentum;
      spec.tracked  = v.tracked;
      spec.rank     = static_cast<int>(v.dims.size());
      std::ranges::copy(v.dims, spec.dims.begin());
      made.variables.push_back({Name{v.name}, spec, last, 0, spec.size()});
    }
    auto ready = std::vector<std::size_t>(static_cast<std::size_t>(last) + 1);
    made.bucket_ends.resize(variables.size() + 1);
    made.sizes = detail::lay_out(made.variables, ready, made.bucket_ends);
    made.hash  = detail::plan_hash(made.variables);
    made.whole = whole;
    made_      = std::make_shared<Made const>(std::move(made));
  }

  operator PlanView() const {
    auto view           = PlanView{};
    view.variables      = made_->variables;
    view.bucket_ends    = Span<std::size_t const>{made_->bucket_ends}.first(made_->sizes.buckets);
    view.buckets        = made_->sizes.buckets;
    view.elements       = made_->sizes.elements;
    view.table_elements = made_->sizes.table_elements;
    view.parameters     = made_->sizes.parameters;
    view.hash           = made_->hash;
    view.whole          = made_->whole;
    return view;
  }

 private:
  struct Made {
    std::vector<PlannedVariable> variables;
    std::vector<std::size_t> bucket_ends;
    detail::PlanSizes sizes;
    std::uint64_t hash = 0;
    bool whole         = true;
  };

  static void check(NamedShape const& v, std::vector<PlannedVariable> const& before) {
    constexpr auto most      = std::tuple_size_v<decltype(Name::text)>;
    constexpr auto most_dims = std::tuple_size_v<decltype(VariableSpec::dims)>;
    CHORALE_EXPECTS(!v.name.empty() && v.name.size() <= most, "the name of a variable has 1 to " +
                                                                  std::to_string(most) + " characters, but \"" +
                                                                  v.name + "\" has " + std::to_string(v.name.size()));
    CHORALE_EXPECTS(v.dims.size() <= most_dims, v.name + " has " + std::to_string(v.dims.size()) +
                                                    " dimensions, and a variable has at most " +
                                                    std::to_string(most_dims));
    CHORALE_EXPECTS(!v.tracked || v.momentum == 0, v.name + " is tracked, and has a momentum of " +
                                                       std::to_string(v.momentum) + "; a tracked variable has none");
    for (int const d : v.dims)
      CHORALE_EXPECTS(d >= 1, "a dimension is at least 1, but " + v.name + " has one of " + std::to_string(d));
    for (auto const& other : before)
      CHORALE_EXPECTS(std::string_view{other.name} != v.name, "two variables have the name " + v.name);
  }

  std::shared_ptr<Made const> made_;
};

}  // namespace chorale
