// SPDX-License-Identifier: Apache-2.0
//
// Update rules against the formulas of their papers, computed in double.
#include <chorale/optim/adam.hpp>
#include <chorale/optim/averaged.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::optim;

namespace {

/// Runs ten steps with gradients sin(i + step) on 33 numbers: odd, so that vector tails are met.
template <class Rule>
std::vector<float> ten_steps(Rule const& rule) {
  constexpr std::size_t n = 33;
  auto w     = std::vector<float>(n), g = w, slots = std::vector<float>(n * 2);
  auto now   = Moment{};
  for (std::size_t i = 0; i < n; ++i) w[i] = static_cast<float>(i) / 10.0F - 1.0F;
  for (; now.step < 10; ++now.step) {
    for (std::size_t i = 0; i < n; ++i) g[i] = 4.0F * std::sin(static_cast<float>(i) + static_cast<float>(now.step));
    rule.template update<Cpu>(
        Update{w, g, Span<float>{slots}.first(n * static_cast<std::size_t>(Rule::slots)), 0.25F, now});
  }
  return w;
}

/// The same in double; `step(w, g, state, t)` is the paper's formula with t from 1.
template <class Step>
void check(std::vector<float> const& got, Step&& step) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    double w = static_cast<double>(static_cast<float>(i) / 10.0F - 1.0F), state[2] = {};
    for (int t = 1; t <= 10; ++t)
      step(w, static_cast<double>(std::sin(static_cast<float>(i) + static_cast<float>(t - 1))), state, t);
    CHECK(got[i] == Approx(w).epsilon(1e-5).margin(1e-6));                 // ten float steps of 6e-8 each
  }
}

}  // namespace

TEST_CASE("SGD follows its formula, with and without momentum", "[optim]") {
  check(ten_steps(SGD{.learning_rate = 0.1F}), [](double& w, double g, double*, int) { w -= 0.1 * g; });
  check(ten_steps(SGD{.learning_rate = 0.1F, .momentum = 0.9F}), [](double& w, double g, double* v, int) {
    v[0] = 0.9 * v[0] - 0.1 * g;
    w += v[0];
  });
  check(ten_steps(SGD{.learning_rate = 0.1F, .momentum = 0.9F, .kind = SGD::Momentum::nesterov}),
        [](double& w, double g, double* v, int) {
          v[0] = 0.9 * v[0] - 0.1 * g;
          w += 0.9 * v[0] - 0.1 * g;
        });
}

TEST_CASE("Adam and AdamW follow their formulas", "[optim]") {
  auto const adam = [](double decay) {
    return [decay](double& w, double g, double* s, int t) {
      s[0] = 0.9 * s[0] + 0.1 * g;
      s[1] = 0.999 * s[1] + 0.001 * g * g;
      auto const m = s[0] / (1 - std::pow(0.9, t)), v = s[1] / (1 - std::pow(0.999, t));
      w = w * (1 - 0.01 * decay) - 0.01 * m / (std::sqrt(v) + 1e-7);
    };
  };
  check(ten_steps(Adam{.learning_rate = 0.01F}), adam(0));
  check(ten_steps(AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F}), adam(0.1));
}

TEST_CASE("a gradient that stays away is forgotten, and leaves no denormal number", "[optim]") {
  auto const forgotten = [](auto const& rule) {
    auto w = std::vector<float>(33, 1.0F), g = w, slots = std::vector<float>(w.size() * 2);
    auto now = Moment{};
    for (; now.step < 1200; ++now.step) {
      rule.template update<Cpu>(Update{w, g, Span<float>{slots}, 1.0F, now});
      std::fill(g.begin(), g.end(), 0.0F);
    }
    CHECK(std::ranges::none_of(slots, [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; }));
    CHECK(slots[0] == 0.0F);                                               // 0.9^1200 is 1e-55
  };
  forgotten(SGD{.learning_rate = 0.1F, .momentum = 0.9F});
  forgotten(SGD{.learning_rate = 0.1F, .momentum = 0.9F, .kind = SGD::Momentum::nesterov});
  forgotten(Adam{.learning_rate = 0.01F});
  forgotten(AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F});
}

TEST_CASE("padding stays zero under every rule", "[optim]") {
  auto const still_zero = [](auto const& rule) {
    auto w = std::vector<float>(16), g = w, slots = std::vector<float>(32);
    rule.template update<Cpu>(Update{w, g, slots, 1.0F, Moment{}});
    return w == std::vector<float>(16);
  };
  CHECK(still_zero(SGD{.momentum = 0.9F}));
  CHECK(still_zero(Adam{}));
  CHECK(still_zero(AdamW{.weight_decay = 0.1F}));
}

TEST_CASE("clipping by global norm scales only what is too long", "[optim]") {
  auto const g = std::vector<float>{3.0F, 4.0F};                           // norm 5
  CHECK(clip_factor<Cpu>(g, 1.0F, 10.0F) == 1.0F);
  CHECK(clip_factor<Cpu>(g, 1.0F, 1.0F) == Approx(0.2));
  CHECK(clip_factor<Cpu>(g, 0.1F, 1.0F) == 1.0F);                          // the scaled gradient has norm 0.5
}

TEST_CASE("LinearWarmup grows in equal steps to its target and stays there", "[optim]") {
  auto const warmup = Rate{LinearWarmup{.initial = 0.1F, .target = 0.5F, .steps = 4}};
  CHECK(warmup({.step = 0}) == 0.1F);
  CHECK(warmup({.step = 1}) == Approx(0.2));
  CHECK(warmup({.step = 3}) == Approx(0.4));
  CHECK(warmup({.step = 4}) == 0.5F);
  CHECK(warmup({.step = 1'000'000}) == 0.5F);
  CHECK(warmup({.step = 2, .rate = 0.7F}) == 0.7F);                        // a callback's rate takes its place
  CHECK(Rate{LinearWarmup{.initial = 0.1F, .target = 0.5F, .steps = 0}}({.step = 0}) == 0.5F);
}

TEST_CASE("a schedule is followed by another one, which counts its steps from there", "[optim]") {
  auto const rate = warm_up(4, 0.8F).then(cosine(10, 0.8F, 0.4F));
  CHECK(rate({.step = 0}) == 0.0F);
  CHECK(rate({.step = 2}) == Approx(0.4));
  CHECK(rate({.step = 4}) == Approx(0.8));
  CHECK(rate({.step = 9}) == Approx(0.6));
  CHECK(rate({.step = 99}) == Approx(0.4));
  CHECK(rate({.step = 2, .rate = 0.7F}) == 0.7F);
  CHECK(rate.text() == "LinearWarmup(0,0.8,4).then(4,CosineDecay(0.8,10,0.5))");
  auto const three = Rate{0.5F}.then(2, Rate{0.25F}.then(3, decaying()));
  CHECK(three({.step = 1}) == 0.5F);
  CHECK(three({.step = 2}) == 0.25F);
  CHECK(three({.step = 4}) == 0.25F);
  CHECK(three({.step = 5, .epoch = 3}) == 1e-4F);                          // epochs go on
  CHECK_THROWS_WITH(Rate{0.5F}.then(-1, 0.1F), Catch::Contains("then takes 0 steps or more, got -1"));
}

namespace {

struct Halving {
  float first;
  std::string text() const { return "Halving(" + word_of(first) + ")"; }
  float operator()(Moment t) const { return first * std::pow(0.5F, static_cast<float>(t.epoch)); }
};

}  // namespace

TEST_CASE("a schedule is any function of the moment, and ranks compare its rates", "[optim]") {
  auto const rate = Rate{[](Moment t) { return 1.0F / (1.0F + static_cast<float>(t.step)); }};
  CHECK(rate({.step = 0}) == 1.0F);
  CHECK(rate({.step = 3}) == 0.25F);
  CHECK(rate({.step = 3, .rate = 0.7F}) == 0.7F);
  CHECK(rate.text().starts_with("lambda(1:0.5,10:0.09090909,100:"));
  auto const own = Rate{Halving{0.5F}};
  CHECK(own.text() == "Halving(0.5)");
  CHECK(own({.epoch = 2}) == 0.125F);
  CHECK(Rate{own}.then(3, own)({.step = 5, .epoch = 1}) == 0.25F);
  auto const falls = Rate{[](Moment t) { return 0.5F - static_cast<float>(t.step); }};
  CHECK(falls({.step = 0}) == 0.5F);
  CHECK_THROWS_WITH(falls({.step = 2, .epoch = 1}),
                    Catch::Contains("the function gives -1.500000 for step 2 of epoch 1"));
}

TEST_CASE("an average of variables follows its formula over blocks", "[optim]") {
  auto const n    = std::size_t{40'000};                                   // three blocks, the last one not full
  auto const rule = Averaged{SGD{.learning_rate = 0.1F, .momentum = 0.5F}, 0.75F};
  auto w = std::vector<float>(n), g = w, slots = std::vector<float>(2 * n), plain = w, velocity = w;
  auto average = std::vector<double>(n);
  for (std::size_t i = 0; i < n; ++i) plain[i] = w[i] = std::sin(static_cast<float>(i));
  for (auto now = Moment{}; now.step < 4; ++now.step) {
    for (std::size_t i = 0; i < n; ++i) g[i] = std::cos(static_cast<float>(i) * static_cast<float>(now.step + 1));
    rule.update<Cpu>(Update{w, g, slots, 0.5F, now});
    SGD{.learning_rate = 0.1F, .momentum = 0.5F}.update<Cpu>(Update{plain, g, velocity, 0.5F, now});
    for (std::size_t i = 0; i < n; ++i)
      average[i] = now.step == 0 ? static_cast<double>(w[i]) : 0.75 * average[i] + 0.25 * static_cast<double>(w[i]);
  }
  CHECK(w == plain);                                                       // averages change nothing
  auto worst = 0.0;
  for (std::size_t i = 0; i < n; ++i)
    worst = std::max(worst, std::abs(static_cast<double>(w[i] + slots[n + i]) - average[i]));
  CHECK(worst < 5e-7);
}

TEST_CASE("SGD takes the rate of each step of a warm-up", "[optim]") {
  check(ten_steps(SGD{.learning_rate = LinearWarmup{.initial = 0.0F, .target = 0.3F, .steps = 6}}),
        [](double& w, double g, double*, int t) { w -= 0.3 * std::min(t - 1, 6) / 6 * g; });
}

TEST_CASE("scaled multiplies a rate by the number of replicas", "[optim]") {
  static_assert(scaled(0.5F, 1) == 0.5F);
  static_assert(scaled(0.125F, 8) == 1.0F);
  auto const rate = Rate{LinearWarmup{.initial = 1e-3F, .target = scaled(1e-3F, 4), .steps = 10}};
  CHECK(rate({.step = 0}) == 1e-3F);
  CHECK(rate({.step = 10}) == Approx(4e-3));
}

TEST_CASE("schedules give the rate of their step or epoch", "[optim]") {
  CHECK(Rate{0.5F}({.step = 7}) == 0.5F);
  CHECK(Rate{ExponentialDecay{.initial = 1, .decay_steps = 10, .decay_rate = 0.5F}}({.step = 20}) == Approx(0.25));
  auto const cosine = Rate{CosineDecay{.initial = 1, .decay_steps = 10, .alpha = 0.1F}};
  CHECK(cosine({.step = 0}) == Approx(1.0));
  CHECK(cosine({.step = 5}) == Approx(0.55));
  CHECK(cosine({.step = 10}) == Approx(0.1));
  CHECK(cosine({.step = 99}) == Approx(0.1));
  for (auto const& [epoch, rate] : {std::pair{0, 1e-3F}, {2, 1e-3F}, {3, 1e-4F}, {6, 1e-4F}, {7, 1e-5F}, {30, 1e-5F}})
    CHECK(decaying()({.epoch = epoch}) == rate);
}
