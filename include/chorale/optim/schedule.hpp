// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/text.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace chorale::optim {

/// Progress of training: updates that were applied, and epochs that were finished.
struct Moment {
  std::int64_t step = 0;
  int epoch         = 0;
  std::optional<float> rate{};  // set by a callback, instead of any schedule
};

/// A schedule with its numbers in one word: "CosineDecay(0.001,1000,0)".
template <class... Number> std::string call_text(std::string const& name, Number... numbers) {
  auto text = std::string{};
  ((text += (text.empty() ? name + "(" : std::string{","}) + word_of(numbers)), ...);
  return text + ")";
}

class Rate;

/// Rate that grows in equal steps from initial to target, and stays there.
///
///   LinearWarmup{1e-3F, scaled(1e-3F, strategy.num_replicas()), 500}
///
/// source  Goyal et al., "Accurate, Large Minibatch SGD", 2017: a batch n times as large takes n times the rate, but
///         not in the first steps
struct LinearWarmup {
  float initial, target;
  std::int64_t steps;

  std::string text() const { return call_text("LinearWarmup", initial, target, steps); }

  float operator()(Moment t) const {
    if (t.step >= steps) return target;
    return initial + (target - initial) * static_cast<float>(t.step) / static_cast<float>(steps);
  }

  /// This warm-up, and after its last step another schedule, which counts its steps from there.
  ///
  ///   optim::warm_up(500, 1e-3F).then(optim::cosine(10'000, 1e-3F))
  Rate then(Rate const& next) const;
};

/// Rate that grows from 0 to `target` in equal steps: LinearWarmup in the order in which it is said.
constexpr LinearWarmup warm_up(std::int64_t steps, float target) { return {0, target, steps}; }

/// The rate for a batch that is `replicas` times as large.
constexpr float scaled(float rate, int replicas) { return rate * static_cast<float>(replicas); }

/// rate = initial · decay_rate ^ (step / decay_steps)
///
/// source  tf.keras.optimizers.schedules.ExponentialDecay
struct ExponentialDecay {
  float initial;
  std::int64_t decay_steps;
  float decay_rate;

  std::string text() const { return call_text("ExponentialDecay", initial, decay_steps, decay_rate); }

  float operator()(Moment t) const {
    return initial * std::pow(decay_rate, static_cast<float>(t.step) / static_cast<float>(decay_steps));
  }
};

/// Rate from initial to alpha · initial along half a cosine, then constant.
///
/// source  tf.keras.optimizers.schedules.CosineDecay; Loshchilov & Hutter, ICLR 2017
struct CosineDecay {
  float initial;
  std::int64_t decay_steps;
  float alpha = 0;

  std::string text() const { return call_text("CosineDecay", initial, decay_steps, alpha); }

  float operator()(Moment t) const {
    auto const done = static_cast<float>(std::min(t.step, decay_steps)) / static_cast<float>(decay_steps);
    return initial * ((1 - alpha) * 0.5F * (1 + std::cos(std::numbers::pi_v<float> * done)) + alpha);
  }
};

/// Rate from `from` to `to` along half a cosine, then constant: CosineDecay in the order in which it is said.
constexpr CosineDecay cosine(std::int64_t steps, float from, float to = 0) {
  return {from, steps, from == 0 ? 0 : to / from};
}

/// One rate for each stretch of epochs: PiecewiseEpochs{{{0, 1e-3f}, {3, 1e-4f}, {7, 1e-5f}}}.
///
/// keeps   at most eight stretches, each named by its first epoch, 0-based and ascending
/// source  the schedule that tf.distribute's guides give to LearningRateScheduler
class PiecewiseEpochs {
 public:
  PiecewiseEpochs(std::initializer_list<std::pair<int, float>> stretches) {
    CHORALE_EXPECTS(stretches.size() >= 1 && stretches.size() <= stretches_.size(),
                    "PiecewiseEpochs takes 1 to 8 stretches, got " + std::to_string(stretches.size()));
    for (auto const& stretch : stretches) stretches_[count_++] = stretch;
  }

  /// The first epoch of each stretch, and its rate.
  Span<std::pair<int, float> const> stretches() const {
    return Span<std::pair<int, float> const>{stretches_}.first(count_);
  }

  std::string text() const {
    auto all = std::string{};
    for (auto const& [epoch, rate] : stretches())
      all += (all.empty() ? "PiecewiseEpochs(" : ",") + std::to_string(epoch) + ":" + word_of(rate);
    return all + ")";
  }

  float operator()(Moment t) const {
    auto rate = stretches_[0].second;
    for (std::size_t i = 0; i < count_ && stretches_[i].first <= t.epoch; ++i) rate = stretches_[i].second;
    return rate;
  }

 private:
  std::array<std::pair<int, float>, 8> stretches_{};
  std::size_t count_ = 0;
};

/// A schedule of a program's own: a function of progress, float(optim::Moment).
///
///   optim::SGD{.learning_rate = [](optim::Moment t) { return 0.1F / (1 + 0.01F * static_cast<float>(t.step)); }}
///
/// order   a function of the moment alone: every replica calls it, and gets the same rate
template <class F>
concept Schedule = requires(F const& f, Moment t) {
  { f(t) } -> std::convertible_to<float>;
};

namespace detail {

/// An object that is called, but not as a schedule is.
template <class F> concept OtherFunction = requires { &F::operator(); } && !Schedule<F>;

/// A schedule of another type than those above.
struct OtherSchedule {
  virtual ~OtherSchedule()           = default;
  virtual float rate(Moment t) const = 0;
  virtual std::string text() const   = 0;
};

}  // namespace detail

/// A learning rate: a number, one of the schedules above, a Schedule of a program's own, or two of them in turn.
class Rate {
 public:
  Rate(float constant) : rule_{constant} {
    CHORALE_EXPECTS(constant >= 0 && std::isfinite(constant),
                    "a learning rate is 0 or more, got " + number_text(constant));
  }
  /// throws    BadArgument when steps are too few, or a number is negative or not finite; so do the next ones
  Rate(LinearWarmup warmup) : rule_{warmup} {
    check_steps("LinearWarmup", warmup.steps, 0);
    check_numbers("LinearWarmup", {warmup.initial, warmup.target});
  }
  Rate(ExponentialDecay decay) : rule_{decay} {
    check_steps("ExponentialDecay", decay.decay_steps, 1);
    check_numbers("ExponentialDecay", {decay.initial, decay.decay_rate});
  }
  Rate(CosineDecay decay) : rule_{decay} {
    check_steps("CosineDecay", decay.decay_steps, 1);
    check_numbers("CosineDecay", {decay.initial, decay.alpha});
  }
  Rate(PiecewiseEpochs decay) : rule_{decay} {
    for (auto const& [epoch, rate] : decay.stretches()) check_numbers("PiecewiseEpochs", {rate});
  }

  /// throws    BadArgument from each call in which the function gives a rate that is negative or not finite
  template <class F> requires(!std::same_as<F, Rate> && Schedule<F>)
  Rate(F f) : rule_{Shared{std::make_shared<Function<F> const>(std::move(f))}} {}
  template <detail::OtherFunction F> Rate(F const&) : Rate{0.0F} {
    static_assert(sizeof(F) == 0,
                  "chorale: a learning rate is a number, a schedule of chorale::optim, or a function of an "
                  "optim::Moment that returns a float: [](optim::Moment t) { return ..; }");
  }

  /// This rate for some steps, and then another one, which counts its steps from there; epochs go on.
  Rate then(std::int64_t steps, Rate next) const;

  /// The number, or the schedule with its numbers, in one word.
  std::string text() const {
    return std::visit(
        [](auto const& rule) {
          if constexpr (std::is_same_v<decltype(rule), Shared const&>) return rule->text();
          else return word_of(rule);
        },
        rule_);
  }

  float operator()(Moment t) const {
    if (t.rate) return *t.rate;
    return std::visit(
        [t](auto const& rule) {
          if constexpr (std::is_same_v<decltype(rule), float const&>) return rule;
          else if constexpr (std::is_same_v<decltype(rule), Shared const&>) return rule->rate(t);
          else return rule(t);
        },
        rule_);
  }

 private:
  using Shared = std::shared_ptr<detail::OtherSchedule const>;  // a Rate is cheap to copy

  template <class F> struct Function;
  struct Chain;

  static void check_steps(std::string const& schedule, std::int64_t steps, std::int64_t least) {
    CHORALE_EXPECTS(steps >= least,
                    schedule + " takes " + std::to_string(least) + " steps or more, got " + std::to_string(steps));
  }

  static void check_numbers(std::string const& schedule, std::initializer_list<float> numbers) {
    for (auto const number : numbers)
      CHORALE_EXPECTS(number >= 0 && std::isfinite(number),
                      "a learning rate is 0 or more, but " + schedule + " has the number " + number_text(number));
  }

  std::variant<float, LinearWarmup, ExponentialDecay, CosineDecay, PiecewiseEpochs, Shared> rule_;
};

/// A function as a schedule. Ranks compare its text(), or without one its type and its first two rates: a table may have
/// no more of them.
template <class F> struct Rate::Function : detail::OtherSchedule {
  explicit Function(F function) : f{std::move(function)} {}

  float rate(Moment t) const override {
    auto const rate = static_cast<float>(f(t));
    CHORALE_EXPECTS(rate >= 0 && std::isfinite(rate), "a learning rate is 0 or more, but the function gives " +
                                                          number_text(rate) + " for step " + std::to_string(t.step) +
                                                          " of epoch " + std::to_string(t.epoch));
    return rate;
  }
  std::string text() const override {
    if constexpr (requires {
                    { f.text() } -> std::convertible_to<std::string>;
                  }) {
      return f.text();
    } else {
      auto const at = [&](std::int64_t step) { return word_of(static_cast<float>(f(Moment{.step = step}))); };
      return type_name<F>() + "(0:" + at(0) + ",1:" + at(1) + ")";
    }
  }

  F f;
};

/// Two schedules in turn.
struct Rate::Chain : detail::OtherSchedule {
  Chain(Rate one, std::int64_t until, Rate other) : first{std::move(one)}, steps{until}, next{std::move(other)} {}

  float rate(Moment t) const override {
    if (t.step < steps) return first(t);
    t.step -= steps;
    return next(t);
  }
  std::string text() const override {
    return first.text() + ".then(" + std::to_string(steps) + "," + next.text() + ")";
  }

  Rate first;
  std::int64_t steps;
  Rate next;
};

inline Rate Rate::then(std::int64_t steps, Rate next) const {
  check_steps("then", steps, 0);
  auto made  = Rate{0.0F};
  made.rule_ = Shared{std::make_shared<Chain const>(*this, steps, std::move(next))};
  return made;
}
inline Rate LinearWarmup::then(Rate const& next) const { return Rate{*this}.then(steps, next); }

/// The schedule of tf.distribute's guides: 1e-3 for three epochs, 1e-4 for four, then 1e-5.
inline Rate decaying() { return PiecewiseEpochs{{0, 1e-3F}, {3, 1e-4F}, {7, 1e-5F}}; }

}  // namespace chorale::optim
