// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/describe.hpp>
#include <chorale/core/types.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
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
  std::optional<float> rate{};                                             // set by a callback, instead of any schedule
};

/// A schedule with its numbers in one word: "CosineDecay(0.001,1000,0)".
template <class... Number>
std::string call_text(std::string const& name, Number... numbers) {
  auto text = std::string{};
  ((text += (text.empty() ? name + "(" : std::string{","}) + word_of(numbers)), ...);
  return text + ")";
}

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
};

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

  std::string text() const {
    auto all = std::string{};
    for (auto const& [epoch, rate] : Span<std::pair<int, float> const>{stretches_}.first(count_))
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

/// A learning rate: a number, or one of the schedules above.
class Rate {
 public:
  Rate(float constant) : rule_{constant} {
    CHORALE_EXPECTS(constant >= 0 && std::isfinite(constant),
                    "a learning rate is 0 or more, got " + std::to_string(constant));
  }
  Rate(LinearWarmup warmup) : rule_{warmup} { check_steps("LinearWarmup", warmup.steps, 0); }
  Rate(ExponentialDecay decay) : rule_{decay} { check_steps("ExponentialDecay", decay.decay_steps, 1); }
  Rate(CosineDecay decay) : rule_{decay} { check_steps("CosineDecay", decay.decay_steps, 1); }
  Rate(PiecewiseEpochs decay) : rule_{decay} {}

  /// The number, or the schedule with its numbers, in one word.
  std::string text() const {
    return std::visit([](auto const& rule) { return word_of(rule); }, rule_);
  }

  float operator()(Moment t) const {
    if (t.rate) return *t.rate;
    return std::visit(
        [t](auto const& rule) {
          if constexpr (std::is_same_v<decltype(rule), float const&>) return rule;
          else return rule(t);
        },
        rule_);
  }

 private:
  static void check_steps(std::string const& schedule, std::int64_t steps, std::int64_t least) {
    CHORALE_EXPECTS(steps >= least, schedule + " takes " + std::to_string(least) + " steps or more, got " +
                                        std::to_string(steps));
  }

  std::variant<float, LinearWarmup, ExponentialDecay, CosineDecay, PiecewiseEpochs> rule_;
};

/// The schedule of tf.distribute's guides: 1e-3 for three epochs, 1e-4 for four, then 1e-5.
inline Rate decaying() { return PiecewiseEpochs{{0, 1e-3F}, {3, 1e-4F}, {7, 1e-5F}}; }

}  // namespace chorale::optim
