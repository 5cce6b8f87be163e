// SPDX-License-Identifier: Apache-2.0
//
// Update rules against the formulas of their papers, computed in double.
#include <chorale/optim/adam.hpp>
#include <chorale/optim/averaged.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/lamb.hpp>
#include <chorale/optim/lion.hpp>
#include <chorale/optim/nadam.hpp>
#include <chorale/optim/rmsprop.hpp>
#include <chorale/optim/sgd.hpp>
#include <chorale/tensor/cpu/all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace chorale;
using namespace chorale::optim;

namespace {

/// An update by a rule of either kind.
template <class Rule> void update(Rule const& rule, Update const& u) {
  if constexpr (UpdatesByVariable<Rule>) rule.template update_variable<Cpu>(u);
  else rule.template update<Cpu>(u);
}

/// Runs ten steps with gradients sin(i + step) on 33 numbers: odd, so that vector tails are met.
template <class Rule> std::vector<float> ten_steps(Rule const& rule) {
  constexpr std::size_t n = 33;
  auto w = std::vector<float>(n), g = w, slots = std::vector<float>(n * 2);
  auto now = Moment{};
  for (std::size_t i = 0; i < n; ++i) w[i] = static_cast<float>(i) / 10.0F - 1.0F;
  for (; now.step < 10; ++now.step) {
    for (std::size_t i = 0; i < n; ++i) g[i] = 4.0F * std::sin(static_cast<float>(i) + static_cast<float>(now.step));
    rule.template update<Cpu>(
        Update{w, g, Span<float>{slots}.first(n * static_cast<std::size_t>(Rule::slots)), 0.25F, now});
  }
  return w;
}

/// The same in double; `step(w, g, state, t)` is the paper's formula with t from 1.
template <class Step> void check(std::vector<float> const& got, Step&& step) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    double w = static_cast<double>(static_cast<float>(i) / 10.0F - 1.0F), state[2] = {};
    for (int t = 1; t <= 10; ++t)
      step(w, static_cast<double>(std::sin(static_cast<float>(i) + static_cast<float>(t - 1))), state, t);
    CHECK(got[i] == Approx(w).epsilon(1e-5).margin(1e-6));  // ten float steps of 6e-8 each
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

TEST_CASE("SGD with weight decay follows its formulas, decoupled and in the gradient", "[optim]") {
  auto rule = SGD{.learning_rate = 0.1F, .weight_decay = 0.25F};
  check(ten_steps(rule), [](double& w, double g, double*, int) { w = w * (1 - 0.1 * 0.25) - 0.1 * g; });
  rule.decay = SGD::Decay::in_gradient;
  check(ten_steps(rule), [](double& w, double g, double*, int) { w -= 0.1 * (g + 0.25 * w); });
  rule.momentum = 0.9F;
  check(ten_steps(rule), [](double& w, double g, double* v, int) {
    v[0] = 0.9 * v[0] - 0.1 * (g + 0.25 * w);
    w += v[0];
  });
  rule.kind = SGD::Momentum::nesterov;
  check(ten_steps(rule), [](double& w, double g, double* v, int) {
    auto const step = 0.1 * (g + 0.25 * w);
    v[0]            = 0.9 * v[0] - step;
    w += 0.9 * v[0] - step;
  });
  rule.decay = SGD::Decay::decoupled;
  check(ten_steps(rule), [](double& w, double g, double* v, int) {
    v[0] = 0.9 * v[0] - 0.1 * g;
    w    = w * (1 - 0.1 * 0.25) + 0.9 * v[0] - 0.1 * g;
  });
}

TEST_CASE("Adam and AdamW follow their formulas", "[optim]") {
  auto const adam = [](double decay) {
    return [decay](double& w, double g, double* s, int t) {
      s[0]         = 0.9 * s[0] + 0.1 * g;
      s[1]         = 0.999 * s[1] + 0.001 * g * g;
      auto const m = s[0] / (1 - std::pow(0.9, t)), v = s[1] / (1 - std::pow(0.999, t));
      w = w * (1 - 0.01 * decay) - 0.01 * m / (std::sqrt(v) + 1e-7);
    };
  };
  check(ten_steps(Adam{.learning_rate = 0.01F}), adam(0));
  check(ten_steps(AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F}), adam(0.1));
}

TEST_CASE("a gradient that stays away is forgotten, and leaves no denormal number", "[optim]") {
  auto const forgotten = [](auto const& rule) {
    auto w = std::vector<float>(33, 1.0F), g = w, slots = std::vector<float>(w.size() * 3);
    auto now = Moment{};
    for (; now.step < 1200; ++now.step) {
      update(rule, Update{w, g, Span<float>{slots}, 1.0F, now});
      std::fill(g.begin(), g.end(), 0.0F);
    }
    CHECK(std::ranges::none_of(slots, [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; }));
    CHECK(slots[0] == 0.0F);  // 0.9^1200 is 1e-55
  };
  forgotten(SGD{.learning_rate = 0.1F, .momentum = 0.9F});
  forgotten(SGD{.learning_rate = 0.1F, .momentum = 0.9F, .kind = SGD::Momentum::nesterov});
  forgotten(Adam{.learning_rate = 0.01F});
  forgotten(AdamW{.learning_rate = 0.01F, .weight_decay = 0.1F});
  forgotten(RMSprop{.learning_rate = 0.01F, .momentum = 0.9F, .centered = true});
  forgotten(Nadam{.learning_rate = 0.01F});
  forgotten(Lion{.learning_rate = 0.01F, .beta_2 = 0.9F});
  forgotten(Lamb{.learning_rate = 0.01F});
}

TEST_CASE("padding stays zero under every rule", "[optim]") {
  auto const still_zero = [](auto const& rule) {
    auto w = std::vector<float>(16), g = w, slots = std::vector<float>(48);
    for (auto now = Moment{}; now.step < 2; ++now.step) update(rule, Update{w, g, slots, 1.0F, now});
    return w == std::vector<float>(16) && slots == std::vector<float>(48);
  };
  CHECK(still_zero(SGD{.momentum = 0.9F}));
  CHECK(still_zero(SGD{.momentum = 0.9F, .weight_decay = 0.1F, .decay = SGD::Decay::in_gradient}));
  CHECK(still_zero(Adam{}));
  CHECK(still_zero(AdamW{.weight_decay = 0.1F}));
  CHECK(still_zero(RMSprop{.momentum = 0.9F, .centered = true}));
  CHECK(still_zero(Nadam{}));
  CHECK(still_zero(Lion{.weight_decay = 0.1F}));
  CHECK(still_zero(Lamb{.weight_decay = 0.1F}));
}

TEST_CASE("a centered RMSprop has no root of a negative number", "[optim]") {
  auto w = std::vector<float>(33), g = std::vector<float>(33), slots = std::vector<float>(99);
  for (auto now = Moment{}; now.step < 300; ++now.step) {  // one gradient for ever: v - a² goes to 0
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = 100.0F + static_cast<float>(i);
    RMSprop{.learning_rate = 1e-6F, .centered = true}.update<Cpu>(Update{w, g, slots, 1.0F, now});
  }
  CHECK(std::ranges::all_of(w, [](float x) { return std::isfinite(x) && x < 0; }));
}

TEST_CASE("Nadam knows how far it is after any number of steps", "[optim]") {
  auto const step_of = [](Nadam const& rule, std::int64_t step) {  // of a gradient that never changed
    auto w = std::vector<float>(1), g = std::vector<float>{1.0F}, slots = std::vector<float>(2);
    auto const mean = [step](float beta) { return static_cast<float>(1 - std::pow(double{beta}, step)); };
    slots           = {mean(rule.beta_1), mean(rule.beta_2)};
    rule.update<Cpu>(Update{w, g, slots, 1.0F, Moment{.step = step}});
    return -w[0] / 0.5F;
  };
  CHECK(step_of({.learning_rate = 0.5F}, 1'000'000) == Approx(1.0).epsilon(1e-5));
  CHECK(step_of({.learning_rate = 0.5F, .beta_1 = 0.9999F}, 1'000'000) == Approx(1.0).epsilon(1e-4));
  auto product = 1.0;  // by definition, beyond the 960 factors
  auto const u = [](int t) { return double{0.9999F} * (1 - std::pow(0.96, t) / 2); };
  for (int t = 1; t <= 2001; ++t) product *= u(t);
  auto const m    = 1 - std::pow(double{0.9999F}, 2001);
  auto const want = u(2002) * m / (1 - product * u(2002)) + (1 - u(2001)) / (1 - product);
  CHECK(step_of({.learning_rate = 0.5F, .beta_1 = 0.9999F}, 2000) == Approx(want).epsilon(1e-4));
}

TEST_CASE("a step of LAMB is as long as the variable, times the rate", "[optim]") {
  auto w = std::vector<float>(33), g = w, slots = std::vector<float>(66);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i)), g[i] = std::cos(3.0F * w[i]);
  auto const norm = [](std::vector<float> const& x) {
    auto sum = 0.0;
    for (auto const y : x) sum += double{y} * double{y};
    return std::sqrt(sum);
  };
  auto moved = w;
  Lamb{.learning_rate = 0.25F}.update_variable<Cpu>(Update{moved, g, slots, 1.0F, Moment{}});
  for (std::size_t i = 0; i < w.size(); ++i) moved[i] -= w[i];
  CHECK(norm(moved) == Approx(0.25 * norm(w)));
  auto zeros = std::vector<float>(33);  // the ratio is 1
  std::ranges::fill(slots, 0.0F);
  Lamb{.learning_rate = 0.25F}.update_variable<Cpu>(Update{zeros, g, slots, 1.0F, Moment{}});
  CHECK(std::abs(zeros[0]) == Approx(0.25));
}

TEST_CASE("an option of an optimizer that is out of range is one sentence", "[optim]") {
  using Catch::Matchers::Contains;
  auto const nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(check_options(Adam{.epsilon = nan}),
                    Contains("epsilon of optim::Adam is a number above 0, got nan"));
  CHECK_THROWS_WITH(check_options(RMSprop{.epsilon = -1}), Contains("epsilon of optim::RMSprop is a number above 0"));
  CHECK_THROWS_WITH(check_options(RMSprop{.rho = 1}), Contains("rho of optim::RMSprop is from 0 to below 1, got 1"));
  CHECK_THROWS_WITH(check_options(RMSprop{.momentum = 2}),
                    Contains("momentum of optim::RMSprop is from 0 to 1, got 2"));
  CHECK_THROWS_WITH(check_options(Nadam{.beta_1 = nan}),
                    Contains("beta_1 of optim::Nadam is from 0 to below 1, got nan"));
  CHECK_THROWS_WITH(check_options(Lion{.weight_decay = -1}),
                    Contains("weight_decay of optim::Lion is a number of 0 or"));
  CHECK_THROWS_WITH(Lamb{.learning_rate = nan}, Contains("a learning rate is 0 or more, got nan"));
  auto const inf = std::numeric_limits<float>::infinity();
  for (auto const bad : {nan, inf, -0.1F}) {
    CHECK_THROWS_WITH(SGD{.learning_rate = bad}, Contains("a learning rate is 0 or more, got " + number_text(bad)));
    CHECK_THROWS_WITH(SGD{.learning_rate = warm_up(10, bad)},
                      Contains("a learning rate is 0 or more, but LinearWarmup has the number " + number_text(bad)));
    CHECK_THROWS_WITH((SGD{.learning_rate = ExponentialDecay{bad, 10, 0.5F}}),
                      Contains("but ExponentialDecay has the number"));
    CHECK_THROWS_WITH((SGD{.learning_rate = CosineDecay{0.1F, 10, bad}}), Contains("but CosineDecay has the number"));
    CHECK_THROWS_WITH((SGD{.learning_rate = PiecewiseEpochs{{0, 0.1F}, {3, bad}}}),
                      Contains("but PiecewiseEpochs has the number"));
  }
  CHECK_NOTHROW(SGD{.learning_rate = cosine(10, 0.1F, 0.01F)});
  CHECK_NOTHROW(check_options(Lamb{}));
  CHECK_NOTHROW(check_options(Averaged{Nadam{}, 0.5F}));
}

TEST_CASE("clipping by global norm scales only what is too long", "[optim]") {
  auto const g = std::vector<float>{3.0F, 4.0F};  // norm 5
  CHECK(clip_factor<Cpu>(g, 1.0F, 10.0F) == 1.0F);
  CHECK(clip_factor<Cpu>(g, 1.0F, 1.0F) == Approx(0.2));
  CHECK(clip_factor<Cpu>(g, 0.1F, 1.0F) == 1.0F);  // the scaled gradient has norm 0.5
}

TEST_CASE("LinearWarmup grows in equal steps to its target and stays there", "[optim]") {
  auto const warmup = Rate{LinearWarmup{.initial = 0.1F, .target = 0.5F, .steps = 4}};
  CHECK(warmup({.step = 0}) == 0.1F);
  CHECK(warmup({.step = 1}) == Approx(0.2));
  CHECK(warmup({.step = 3}) == Approx(0.4));
  CHECK(warmup({.step = 4}) == 0.5F);
  CHECK(warmup({.step = 1'000'000}) == 0.5F);
  CHECK(warmup({.step = 2, .rate = 0.7F}) == 0.7F);  // a callback's rate takes its place
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
  CHECK(three({.step = 5, .epoch = 3}) == 1e-4F);  // epochs go on
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
  CHECK(rate.text() == "lambda(0:1,1:0.5)");
  auto const table =
      Rate{[all = std::vector{0.5F, 0.25F}](Moment t) { return all.at(static_cast<std::size_t>(t.step)); }};
  CHECK(table.text() == "lambda(0:0.5,1:0.25)");  // nobody asks it for the rate of step 2
  auto const own = Rate{Halving{0.5F}};
  CHECK(own.text() == "Halving(0.5)");
  CHECK(own({.epoch = 2}) == 0.125F);
  CHECK(Rate{own}.then(3, own)({.step = 5, .epoch = 1}) == 0.25F);
  auto const falls = Rate{[](Moment t) { return 0.5F - static_cast<float>(t.step); }};
  CHECK(falls({.step = 0}) == 0.5F);
  CHECK_THROWS_WITH(falls({.step = 2, .epoch = 1}), Catch::Contains("the function gives -1.5 for step 2 of epoch 1"));
}

TEST_CASE("an average of variables follows its formula over blocks", "[optim]") {
  auto const n    = std::size_t{40'000};  // three blocks, the last one not full
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
  CHECK(w == plain);  // averages change nothing
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
