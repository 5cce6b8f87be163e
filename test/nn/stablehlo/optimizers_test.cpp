// SPDX-License-Identifier: Apache-2.0
//
// Update rules in operations against those of Cpu, and what happens to gradients and moving variables beside them.
#include "test/support/stablehlo_interpreter.hpp"

#include <chorale/core/random.hpp>
#include <chorale/nn/lowering/optimizers.hpp>
#include <chorale/optim/clip.hpp>
#include <chorale/optim/optimizer.hpp>
#include <chorale/optim/schedule.hpp>
#include <chorale/tensor/cpu/kernels.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hlo_optimizers {

using namespace chorale;
namespace hlo = nn::stablehlo;
using test::Interpreter;
using test::Numbers;

namespace {

constexpr std::size_t n = 24;

std::vector<float> random(std::uint64_t stream, float size = 1) {
  auto made = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) made[i] = Random{5, stream}.uniform(i, -size, size);
  return made;
}
Numbers wide(std::vector<float> const& x) { return {x.begin(), x.end()}; }

/// Compares five updates of 24 numbers, each from where Cpu's last one ended: values and slots.
template <class O> void check(O const& rule) {
  using Rule          = hlo::UpdateLowering<O>;
  constexpr auto kept = static_cast<std::size_t>(O::slots);
  auto program        = hlo::Program{};
  auto const dims     = hlo::Dims{4, 6};
  auto const w = program.parameter(hlo::Element::f32, dims), g = program.parameter(hlo::Element::f32, dims);
  auto slots = std::vector<hlo::Value>{};
  for (std::size_t s = 0; s < kept; ++s) slots.push_back(program.parameter(hlo::Element::f32, dims));
  auto const fed = program.parameter(hlo::Element::f32, {static_cast<std::int64_t>(Rule::scalars)});
  auto wanted    = slots;
  wanted.push_back(Rule::write(rule, w, g, wanted, fed));
  std::ranges::copy_n(wanted.begin(), kept, slots.begin());

  auto values = random(1), memory = std::vector<float>(kept * n);
  values[3] = 0;
  for (std::int64_t step = 0; step < 5; ++step) {
    INFO("step " << step);
    auto gradient  = random(10 + static_cast<std::uint64_t>(step), 3);
    gradient[5]    = 0;  // one number never has a gradient
    auto const now = optim::Moment{.step = step};
    auto numbers   = std::vector<float>(Rule::scalars);
    Rule::numbers(rule, now, numbers.data());
    auto in = std::vector<Numbers>{wide(values), wide(gradient)};
    for (std::size_t s = 0; s < kept; ++s) in.emplace_back(&memory[s * n], &memory[s * n] + n);
    in.push_back(wide(numbers));
    auto const made   = Interpreter{program, {in}, wanted};
    auto const update = optim::Update{.values = values, .gradients = gradient, .slots = memory, .scale = 1, .now = now};
    if constexpr (optim::UpdatesByVariable<O>) rule.template update_variable<Cpu>(update);
    else rule.template update<Cpu>(update);
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(made(wanted.back())[i] == Approx(values[i]).epsilon(1e-6).margin(1e-7));
      for (std::size_t s = 0; s < kept; ++s)
        CHECK(made(slots[s])[i] == Approx(memory[s * n + i]).epsilon(1e-6).margin(1e-7));
    }
  }
}

}  // namespace

TEST_CASE("update rules in operations are those of Cpu", "[nn][stablehlo]") {
  using optim::SGD;
  auto const rate = optim::LinearWarmup{0.02F, 0.1F, 4};
  check(SGD{.learning_rate = rate});
  check(SGD{.weight_decay = 0.1F});
  check(SGD{.weight_decay = 0.1F, .decay = SGD::Decay::in_gradient});
  check(SGD{.momentum = 0.9F, .weight_decay = 0.1F});
  check(SGD{.momentum = 0.9F, .kind = SGD::Momentum::nesterov, .weight_decay = 0.1F, .decay = SGD::Decay::in_gradient});
  check(optim::Adam{.learning_rate = rate, .beta_1 = 0.8F, .epsilon = 1e-3F});
  check(optim::AdamW{.learning_rate = rate, .weight_decay = 0.3F});
  check(optim::RMSprop{.learning_rate = rate});
  check(optim::RMSprop{.momentum = 0.9F, .epsilon = 1e-3F, .centered = true});
  check(optim::RMSprop{.epsilon = 1e-3F, .centered = true});
  check(optim::Adagrad{.learning_rate = rate});
  check(optim::Nadam{.learning_rate = rate});
  check(optim::Lion{.learning_rate = rate, .weight_decay = 0.3F});
  check(optim::Lamb{.learning_rate = rate, .weight_decay = 0.3F});
}

TEST_CASE("gradients in operations are clipped by their global norm", "[nn][stablehlo]") {
  auto program = hlo::Program{};
  auto const a = program.parameter(hlo::Element::f32, {4, 6}), b = program.parameter(hlo::Element::f32, {24});
  auto const by  = [&](double limit) { return hlo::clipped({a, b}, limit); };
  auto const low = by(0.5), high = by(1e6), none = by(0);
  CHECK(none[0].id == a.id);
  auto const x = random(1), y = random(2);
  auto all = x;
  all.insert(all.end(), y.begin(), y.end());
  auto const factor = optim::clip_factor<Cpu>(all, 1, 0.5F);
  REQUIRE(factor < 0.2F);
  auto const made = Interpreter{program, {{wide(x), wide(y)}}, {low[0], low[1], high[0], high[1]}};
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(made(low[0])[i] == Approx(double{x[i]} * double{factor}).epsilon(1e-6));
    CHECK(made(low[1])[i] == Approx(double{y[i]} * double{factor}).epsilon(1e-6));
    CHECK(made(high[0])[i] == Approx(x[i]).epsilon(1e-7));
    CHECK(made(high[1])[i] == Approx(y[i]).epsilon(1e-7));
  }
  auto const zeros = Numbers(n, 0.0);
  CHECK(Interpreter{program, {{zeros, zeros}}, {low[0]}}(low[0]) == zeros);
}

TEST_CASE("gradients of which each replica has a part are clipped by the norm of all, of any size", "[nn][stablehlo]") {
  auto const size = GENERATE(1e-3F, 1.0F, 1e3F);  // whose squares f16 does not have
  auto const x = random(1, size), y = random(2, size);
  auto all = x;
  all.insert(all.end(), y.begin(), y.end());
  auto const limit  = double{size} / 2;
  auto const factor = double{optim::clip_factor<Cpu>(all, 1, static_cast<float>(limit))};
  REQUIRE(factor < 0.2);
  auto program    = hlo::Program{2};
  auto const part = program.parameter(hlo::Element::f16, {static_cast<std::int64_t>(n)});
  auto const by   = hlo::clipped({part}, limit, true)[0];
  auto const made = Interpreter{program, {{wide(x)}, {wide(y)}}, {by}};
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(made(by, 0)[i] == Approx(double{x[i]} * factor).epsilon(0.005));
    CHECK(made(by, 1)[i] == Approx(double{y[i]} * factor).epsilon(0.005));
  }
}

TEST_CASE("moving variables in operations are moved as on Cpu", "[nn][stablehlo]") {
  auto const how  = GENERATE(Movement{0.9F, 0.1F}, Movement{1, 1});
  auto program    = hlo::Program{};
  auto const dims = hlo::Dims{static_cast<std::int64_t>(n)};
  auto const x = program.parameter(hlo::Element::f32, dims), to = program.parameter(hlo::Element::f32, dims);
  auto const rows = program.parameter(hlo::Element::f32, {});
  auto const next = hlo::moved(how, x, to, rows);
  auto const now  = random(1);
  auto towards = random(2, 50), moved = std::vector<float>(n);
  auto const made = Interpreter{program, {{wide(now), wide(towards), {16}}}, {next}};
  Kernels<Cpu>::move(n, now.data(), towards.data(), 16, how, moved.data());
  for (std::size_t i = 0; i < n; ++i) CHECK(made(next)[i] == Approx(moved[i]).epsilon(1e-6).margin(1e-7));
}

}  // namespace hlo_optimizers
