// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/text.hpp>
#include <chorale/optim/loss_scaled.hpp>
#include <chorale/optim/optimizer.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace chorale::optim {

/// Variables that are updated in another way than the others: those whose names fit a pattern.
struct ParameterGroup {
  std::string names;           // a NamePattern: "*/bias", "dense{_i}/*"
  float learning_rate = 1;     // factor of the optimizer's
  float weight_decay  = 1;     // factor of the optimizer's
  bool trainable      = true;  // false: no bit of them changes

  /// The group in one word.
  std::string text() const {
    return names + ":" + (trainable ? word_of(learning_rate) + "," + word_of(weight_decay) : "frozen");
  }
};

/// A group of variables that keep their values: optim::frozen("embedding*").
inline ParameterGroup frozen(std::string names) { return {.names = std::move(names), .trainable = false}; }

/// An optimizer that updates some variables in another way: with a learning rate or a weight decay times a factor, or
/// not at all. A variable belongs to the first group whose pattern its name fits; one that fits none is updated as by O.
///
///   optim::Grouped{optim::AdamW{.learning_rate = 1e-3F},
///                  {optim::frozen("embedding*"), {.names = "*/bias", .weight_decay = 0}}}
///
/// keeps    a frozen variable keeps its bits, and its slots are zeros; a layer whose moving averages are all frozen
///          normalizes with them in training, as Keras' trainable = False does. The gradient of a frozen variable does not
///          count in global_clipnorm. It is computed and reduced all the same. Strategies whose replicas take the mean of
///          their variables, such as LocalSgd, also average frozen ones, which may round them
/// cost     one pass over the memory, as O, in one call for each range of variables of one group that are neighbours
/// throws   BadArgument when a factor is negative or not finite; when a copy of a model is made: if a pattern fits no
///          variable, or if all variables are frozen
/// source   param_groups of torch.optim.Optimizer; trainable of tf.keras.layers.Layer
template <Optimizer O> struct Grouped : O {
  static_assert(!scales_loss<O>,
                "chorale: put optim::LossScaled around optim::Grouped, not into it: "
                "optim::LossScaled{optim::Grouped{optimizer, groups}}");

  using ungrouped = O;

  Grouped(O const& rule, std::vector<ParameterGroup> of) : O{rule}, groups{std::move(of)} {
    for (auto const& group : groups) {
      check(group, "learning_rate", group.learning_rate);
      check(group, "weight_decay", group.weight_decay);
      CHORALE_EXPECTS(group.learning_rate == 1 || rule.rate(Moment{.rate = 0.25F}) == 0.25F,
                      "a group has a learning_rate of its own only if rate(moment) of the optimizer gives moment.rate "
                      "where that is set, as optim::Rate does");
      if constexpr (!requires { rule.weight_decay; })
        CHORALE_EXPECTS(group.weight_decay == 1, "the group " + group.names + " has a weight_decay of " +
                                                     number_text(group.weight_decay) + " times that of " +
                                                     type_name<O>() + ", which has none");
    }
  }

  std::vector<ParameterGroup> groups;

  /// Calls visit(name, value) for each option, beginning with O's. Ranks compare these.
  void options(auto&& visit) const {
    if constexpr (NamesOptions<O>) {
      O::options(visit);
    } else {
      visit("learning_rate", this->rate(Moment{}));
      visit("global_clipnorm", static_cast<float>(this->global_clipnorm));
    }
    for (auto const& group : groups) visit("group", group);
  }

  /// Refuses an update of variables without names.
  template <class D> void update(Update const&) const {
    static_assert(sizeof(D) == 0,
                  "chorale: optim::Grouped does not run under ParameterServerStrategy, whose servers "
                  "do not know the names of variables. Use MultiWorkerMirroredStrategy");
  }

 private:
  static void check(ParameterGroup const& group, std::string const& what, float factor) {
    CHORALE_EXPECTS(factor >= 0 && std::isfinite(factor),
                    what + " of the group " + group.names + " is a factor of 0 or more, got " + number_text(factor));
  }
};

/// An optimizer that is Grouped, or contains one.
template <class O> concept HasGroups = requires { typename O::ungrouped; };

}  // namespace chorale::optim
