// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/name_pattern.hpp>
#include <chorale/core/types.hpp>
#include <chorale/device/device.hpp>
#include <chorale/optim/grouped.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/square_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorale {

/// The groups of an optim::Grouped among the variables of a plan: how each variable is updated, and which ranges of
/// memory are updated alike.
///
/// O    an optimizer that HasGroups
template <class O> class ParameterGroups {
 public:
  /// throws    BadArgument when a pattern fits no variable of a whole network, or all of them are frozen
  ParameterGroups(O const& rule, PlanView const& plan) {
    auto const& groups = rule.groups;
    auto fitting       = std::vector<std::size_t>(groups.size());  // variables whose names fit
    auto patterns      = std::vector<NamePattern>{};
    for (auto const& group : groups) rules_.push_back(rule_of(rule, group)), patterns.emplace_back(group.names);
    rules_.push_back({rule, 1, false});
    for (auto const& v : plan.variables) {
      group_of_.push_back(groups.size());
      for (auto g = groups.size(); g-- > 0;)
        if (patterns[g].fits(std::string{v.name})) ++fitting[g], group_of_.back() = g;
    }
    for (std::size_t g = 0; g < groups.size() && plan.whole; ++g)
      CHORALE_EXPECTS(fitting[g] != 0, "no name of the " + std::to_string(group_of_.size()) +
                                           " variables fits the pattern \"" + groups[g].names +
                                           "\" of optim::Grouped; they are " + names(plan));
    CHORALE_EXPECTS(!plan.whole || !std::ranges::all_of(group_of_, [&](std::size_t g) { return rules_[g].frozen; }),
                    "the groups of optim::Grouped freeze all " + std::to_string(group_of_.size()) +
                        " variables: nothing is left to train");
    find_parts(plan);
    for (std::size_t i = 0; i < group_of_.size(); ++i)
      if (is_frozen(i)) are_frozen_.resize(group_of_.size()), are_frozen_[i] = 1;
  }

  bool is_frozen(std::size_t variable) const { return rules_[group_of_[variable]].frozen; }

  /// For each variable, 1 if it is frozen; empty if none is.
  Span<char const> are_frozen() const { return are_frozen_; }

  /// Updates the dense variables that are not frozen, each as its group says.
  ///
  /// u         of a range of the body of all dense variables
  template <class D> void update(optim::Update const& u, Range of) const {
    for (auto const& part : parts_) {
      if (part.range.end <= of.begin || part.range.begin >= of.end) continue;
      auto const begin = std::max(part.range.begin, of.begin) - of.begin;
      auto const end   = std::min(part.range.end, of.end) - of.begin;
      auto const& own  = rules_[part.group];
      auto const here  = optim::Update{u.values.subspan(begin, end - begin),
                                      u.gradients.subspan(begin, end - begin),
                                      u.slots.subspan(std::min(begin, u.slots.size())),
                                      u.scale,
                                      moment(own, u.now),
                                      u.stride};
      if constexpr (optim::UpdatesByVariable<O>) own.rule.template update_variable<D>(here);
      else own.rule.template update<D>(here);
    }
  }

  /// Calls f(rule, moment) with the rule and moment of a variable's group, unless the group is frozen.
  template <class F> void update_alike(O const&, std::size_t variable, optim::Moment const& now, F&& f) const {
    auto const& own = rules_[group_of_[variable]];
    if (!own.frozen) f(own.rule, moment(own, now));
  }

  /// The ranges of frozen variables, ascending, from the header on.
  Span<Range const> frozen() const { return frozen_; }

  /// Sum of the squares of all gradients of dense variables that are not frozen.
  ///
  /// body      gradients between header and trailer
  template <class D> double squared_norm(Span<float const> body) const {
    if constexpr (D::memory == Memory::host) {
      return SquareTree::sum(body, frozen_);
    } else {
      auto sum = 0.0;
      for (auto const& part : parts_)
        sum += Kernels<D>::squared_norm(body.subspan(part.range.begin, part.range.size()));
      return sum;
    }
  }

 private:
  /// How the variables of one group are updated.
  struct Own {
    typename O::ungrouped rule;
    float rate;  // factor of the rule's rate
    bool frozen;
  };
  /// Neighbours of one group; a single variable where O takes whole ones.
  struct Part {
    Range range;  // from the header on
    std::size_t group;
  };

  static Own rule_of(O const& rule, optim::ParameterGroup const& group) {
    auto made = Own{rule, group.learning_rate, !group.trainable};
    if constexpr (requires { made.rule.weight_decay; }) made.rule.weight_decay *= group.weight_decay;
    return made;
  }
  static optim::Moment moment(Own const& own, optim::Moment now) {
    if (own.rate != 1) now.rate = own.rate * own.rule.rate(now);
    return now;
  }

  void find_parts(PlanView const& plan) {
    auto order = std::vector<std::size_t>{};  // dense variables as they lie in memory
    for (std::size_t i = 0; i < plan.variables.size(); ++i)
      if (!plan.variables[i].spec.by_rows) order.push_back(i);
    std::ranges::sort(order, {}, [&](std::size_t i) { return plan.variables[i].offset; });
    auto last = rules_.size();  // the group of the variable before
    for (auto const i : order) {
      auto const& v    = plan.variables[i];
      auto const range = Range{v.slot_offset(), v.slot_offset() + plan::aligned(v.size)};
      auto const joins = group_of_[i] == last && !optim::UpdatesByVariable<O>;
      if (is_frozen(i)) frozen_.push_back(range);
      if (!is_frozen(i) && joins) parts_.back().range.end = range.end;
      else if (!is_frozen(i)) parts_.push_back({range, group_of_[i]});
      last = is_frozen(i) ? rules_.size() : group_of_[i];
    }
  }

  static std::string names(PlanView const& plan) {
    auto all = std::string{};
    for (std::size_t i = 0; i < plan.variables.size() && i < 8; ++i)
      all.append(i == 0 ? "" : ", ") += std::string{std::string_view{plan.variables[i].name}};
    return all + (plan.variables.size() > 8 ? ", .." : "");
  }

  std::vector<std::size_t> group_of_;  // of each variable, an index of rules_
  std::vector<Own> rules_;             // of each group, then of variables without a group
  std::vector<Part> parts_;
  std::vector<Range> frozen_;
  std::vector<char> are_frozen_;
};

namespace detail {

/// Groups of an optimizer without groups.
struct NoGroups {
  template <class O> constexpr NoGroups(O const&, PlanView const&) {}
  static constexpr bool is_frozen(std::size_t) { return false; }
  static constexpr Span<Range const> frozen() { return {}; }
  static constexpr Span<char const> are_frozen() { return {}; }
  template <class O, class F> static void update_alike(O const& rule, std::size_t, optim::Moment const& now, F&& f) {
    f(rule, now);
  }
};

template <class O> struct GroupsOfRule {
  using type = NoGroups;
};
template <optim::HasGroups O> struct GroupsOfRule<O> {
  using type = ParameterGroups<O>;
};
template <class O> using GroupsOf = typename GroupsOfRule<O>::type;

}  // namespace detail
}  // namespace chorale
