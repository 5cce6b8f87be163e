// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>
#include <chorale/tensor/kernels.hpp>
#include <chorale/tensor/plan.hpp>
#include <chorale/tensor/variable.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace chorale {

namespace custom {

/// One step of one copy of a model, as its learner sees it: values to read, and gradients to write.
///
///   | header | last variable | ... | variable 0 | trailer |       loss() completes the header, done(i) variable i;
///   |------- is sent ------->|                                    what is complete from the front is sent at once
///
/// Ready     called with an end: gradients below it are final, the header first
/// keeps     a step allocates nothing. Gradients are zeros when the step begins, and sums over the rows of the batch
///           when it ends
/// throws    BadArgument from loss() and done() when the learner contradicts itself; no variable is changed
template <class Ready> class Step {
 public:
  static constexpr bool looks_at_end = std::is_base_of_v<LooksAtEnd, Ready>;  // nothing leaves before the end

  Pass const pass;  // training; in `now` seed, step, first_row

  /// rows      of the batch
  /// metrics   number of metrics that the model names
  /// is_done   a zero for each variable; the caller owns it, so that a step allocates nothing
  Step(Variables const& variables, Gradients const& gradients, Pass const& of, std::size_t rows, std::size_t metrics,
       Span<char> is_done, Ready& ready)
      : pass{of}, variables_{variables}, gradients_{gradients}, rows_{rows}, metrics_{metrics}, is_done_{is_done},
        waits_{is_done.size()}, ready_{&ready} {}

  std::size_t rows() const { return rows_; }  // of the batch
  std::size_t variables() const { return is_done_.size(); }

  /// The values of variable i, in the order in which the model names its variables.
  Span<float const> value(std::size_t i) const { return variables_[checked(i, "the value")].value; }

  /// The gradient of the loss by variable i, to be added to until done(i).
  Span<float> gradient(std::size_t i) const { return gradients_[checked(i, "the gradient")]; }

  /// Reports the sum of losses over the rows of the batch, and of each metric of the model, once in a step.
  void loss(float sum, std::convertible_to<float> auto... metrics) {
    if (has_loss_)
      throw BadArgument{"the learner reports the loss of a step twice: " + number_text(gradients_.loss()) + " and " +
                            number_text(sum) + ".",
                        "one call of step.loss(), with the sum over all rows."};
    if (sizeof...(metrics) != metrics_)
      throw BadArgument{"the learner reports " + std::to_string(sizeof...(metrics)) + " metrics, but its model names " +
                            std::to_string(metrics_) + ".",
                        "step.loss(sum, metrics...) with a sum for each of metric_names."};
    auto const header = gradients_.header();
    header.loss()     = sum;
    header.rows()     = static_cast<float>(rows_);
    auto i            = std::size_t{0};
    ((header.metric(i++) = static_cast<float>(metrics)), ...);
    has_loss_ = true;
    (*ready_)(plan::header);
    leave();
  }

  /// Reports over how many positions the loss is a sum, before loss(): of loss::per_position.
  void positions(float n) { gradients_.header().positions() = n; }

  /// Reports that the gradient of variable i is final: in any order, once for each variable. A learner that never calls
  /// it ends all of them when it returns.
  void done(std::size_t i) {
    if (std::exchange(is_done_[checked(i, "done")], 1) != 0)
      throw BadArgument{"the learner reports variable " + std::to_string(i) + ", " + name_of(i) +
                            ", as done twice in a step, after " + std::to_string(count_) + " of " +
                            std::to_string(variables()) + " variables.",
                        "step.done(i) once for each variable, after the last change of its gradient."};
    ++count_;
    if (has_loss_) leave();
  }

  /// Reports that all gradients which lie below element `end` of the plan's layout are final. For learners that finish
  /// them in the order of that layout, the last variable first, after loss().
  void done_below(std::size_t end) {
    for (auto i = waits_; i-- > 0 && (gradients_.plan[i].end() <= end || gradients_.plan[i].spec.by_rows);)
      count_ += std::exchange(is_done_[i], char{1}) == 0 ? 1 : 0;
    if (has_loss_) leave();
  }

  /// Ends the step after the learner has returned. Called by the library.
  void end() {
    if (!has_loss_)
      throw BadArgument{"the learner ends a step of " + std::to_string(rows_) + " rows with 0 losses, and 1 is needed.",
                        "step.loss(sum, metrics...), or, without metrics, returning the sum of losses."};
    if (count_ == 0) std::ranges::fill(is_done_, char{1});
    else if (count_ != variables())
      throw BadArgument{"the learner reports " + std::to_string(count_) + " of " + std::to_string(variables()) +
                            " variables as done; " + first_missing() + " is missing.",
                        "step.done(i) for each variable, or for none."};
    leave();
  }

  bool has_loss() const { return has_loss_; }

 private:
  std::size_t checked(std::size_t i, char const* what) const {
    if (i < variables()) return i;
    throw BadArgument{"the learner asks for " + std::string{what} + " of variable " + std::to_string(i) +
                          ", but the model has " + std::to_string(variables()) + ".",
                      "an index from 0, in the order in which the model names its variables."};
  }
  std::string name_of(std::size_t i) const { return std::string{std::string_view{gradients_.plan[i].name}}; }
  std::string first_missing() const {
    auto const i = static_cast<std::size_t>(std::ranges::find(is_done_, char{0}) - is_done_.begin());
    return "variable " + std::to_string(i) + ", " + name_of(i) + ",";
  }

  /// Lets go of what is complete from the front of the gradients, where the last variable lies.
  void leave() {
    auto end = std::size_t{0};
    for (; waits_ > 0 && is_done_[waits_ - 1] != 0; --waits_) {
      auto const& v = gradients_.plan[waits_ - 1];
      if (!v.spec.by_rows) end = std::max(end, v.offset + plan::aligned(v.size));
    }
    if (end != 0) (*ready_)(end);
  }

  Variables variables_;
  Gradients gradients_;
  std::size_t rows_, metrics_;
  Span<char> is_done_;
  std::size_t count_ = 0;  // variables that were reported
  std::size_t waits_;      // variables that have not left
  bool has_loss_ = false;
  Ready* ready_;
};

}  // namespace custom

namespace detail {

template <class R> concept LossOrNothing = std::same_as<R, void> || std::convertible_to<R, float>;

}  // namespace detail

/// How one copy of a model computes; each copy has its own learner. Everything else about a copy is the library's: its
/// memory, its optimizer, what replicas report to each other.
///
///   learner.learn(step, batch)     adds the gradients of all rows to step.gradient(i). Returns the sum of losses over
///                                  the rows, unless step.loss() has reported it
///   evaluate(variables, batch, header)   optional: writes loss and metrics, sums over the rows, into a StepHeader.
///                                  Without it, learn() computes them, and its gradients are ignored
///   predict(variables, batch)      optional, with a static constexpr output_width: the outputs, (B, output_width),
///                                  valid until the next call
///   initialize(variables, seed)    optional: writes the first values. The same seed gives the same bits
///   place(variables, gradients)    optional: called when these have a new place, before the first step
///   metric_names                   optional: a static constexpr std::array<std::string_view, n> of names of metrics
///
/// Batch     has rows, first_row and part(i, n), and for Reproducible and FitOptions::accumulate also global_rows and
///           rows_in(range), as BasicBatch has them
/// order     learn() is a function of values, batch and step.pass: the same input bits give the same output bits
template <class L, class Batch>
concept Learner =
    std::copy_constructible<L> && requires(L& learner, custom::Step<LooksAtEnd>& step, Batch const& batch) {
      { learner.learn(step, batch) } -> detail::LossOrNothing;
    };

}  // namespace chorale
