// SPDX-License-Identifier: Apache-2.0
//
// What a learner may report in a step, and what it is told when it contradicts itself.
#include "test/model/decay.hpp"
#include "test/support/count_allocations.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

using namespace chorale;
using chorale::test::allocations;
using Catch::Contains;

namespace {

decay::Row const& some_rows() {
  static auto const x = std::vector<float>{0.1F, 0.5F, 1.0F, 2.0F}, y = std::vector<float>{1, 0.8F, 0.4F, 0.3F};
  static auto const rows = decay::Row{.x = x, .y = y, .rows = 4};
  return rows;
}

/// A copy of a model of two numbers, whose step is what `f` does.
template <class F> auto copy_of(F f) {
  return custom_model<decay::Row>({{"first"}, {"second"}}, f, optim::SGD{}).instantiate(Cpu::logical(1)[0], 1);
}

template <class F> std::string refusal(F f) {
  auto copy         = copy_of([&f](auto& step, decay::Row const&) { f(step); });
  auto const before = copy.hash();
  try {
    copy.value_and_gradient(some_rows(), 0, LooksAtEnd{});
  } catch (BadArgument const& error) {
    CHECK(copy.hash() == before);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("gradients that are written by hand are those of differences", "[model]") {
  auto copy     = decay::fit_model().instantiate(Cpu::logical(1)[0], 1);
  auto const v  = copy.net.variables();
  v[0].value[0] = 0.3F;
  copy.value_and_gradient(some_rows(), 0, LooksAtEnd{});
  auto const got     = std::vector<float>(copy.gradients().values.begin(), copy.gradients().values.end());
  auto const loss_of = [&] { return static_cast<double>(copy.value_and_gradient(some_rows(), 0, LooksAtEnd{}).value); };
  for (std::size_t i = 0; i < v.size(); ++i)
    for (std::size_t k = 0; k < v[i].value.size(); ++k) {
      auto& at         = v[i].value[k];
      auto const value = at;
      auto const h     = 1e-2F;
      at               = value + h;
      auto const above = loss_of();
      at               = value - h;
      auto const below = loss_of();
      at               = value;
      INFO(std::string{v[i].name} << " " << k);
      auto const slope = (above - below) / (2 * static_cast<double>(h));
      CHECK(got[v.plan[i].offset + k] == Approx(slope).epsilon(1e-2).margin(1e-3));
    }
}

TEST_CASE("what is complete from the front of the gradients leaves at once, the header first", "[model]") {
  auto ends = std::vector<std::size_t>{};
  auto seen = std::vector<std::size_t>{};  // how many had left, after each report
  auto copy = copy_of([&](auto& step, decay::Row const&) {
    auto const note = [&] { seen.push_back(ends.size()); };
    step.done(1);
    note();  // waits for the header
    step.loss(1);
    note();
    step.done(0);
    note();
  });
  copy.value_and_gradient(some_rows(), 0, [&](std::size_t end) { ends.push_back(end); });
  CHECK(ends == std::vector<std::size_t>{plan::header, plan::header + plan::align, plan::header + 2 * plan::align,
                                         plan::header + 2 * plan::align + plan::trailer});
  CHECK(seen == std::vector<std::size_t>{0, 2, 3});
  ends.clear();
  CHECK(copy.value_and_gradient(decay::Row{}, 0, [&](std::size_t end) { ends.push_back(end); }).count == 0);
  CHECK(ends.size() == 1);  // an empty share does not ask the learner
}

TEST_CASE("a step of a custom model and its update allocate nothing", "[model]") {
  auto copy       = decay::fit_model().instantiate(Cpu::logical(1)[0], 1);
  auto header     = std::array<float, plan::header>{};
  auto const step = [&] {
    copy.value_and_gradient(some_rows(), 0, LooksAtEnd{});
    copy.optimizer.apply(copy.net.variables(), copy.gradients());
    copy.evaluate(some_rows(), header);
  };
  step();
  auto const before = allocations;
  for (int i = 0; i < 200; ++i) step();
  CHECK(allocations == before);
}

TEST_CASE("a learner that contradicts itself is told so, and no variable is changed", "[model]") {
  CHECK(refusal([](auto& step) { step.loss(1); }).empty());
  CHECK_THAT(
      refusal([](auto& step) { step.loss(1), step.done(1), step.done(1); }),
      Contains("reports variable 1, second, as done twice in a step, after 1 of 2 variables") && Contains("Try: "));
  CHECK_THAT(refusal([](auto& step) { step.loss(1), step.done(2); }),
             Contains("asks for done of variable 2, but the model has 2") && Contains("Try: "));
  CHECK_THAT(refusal([](auto& step) { step.gradient(7)[0] = 1; }),
             Contains("asks for the gradient of variable 7, but the model has 2"));
  CHECK_THAT(refusal([](auto& step) { step.loss(step.value(2)[0]); }), Contains("the value of variable 2"));
  CHECK_THAT(refusal([](auto& step) { step.loss(1), step.done(1); }),
             Contains("reports 1 of 2 variables as done; variable 0, first, is missing") && Contains("Try: "));
  CHECK_THAT(refusal([](auto& step) { step.done(0), step.done(1); }),
             Contains("a step of 4 rows with 0 losses, and 1 is needed") && Contains("Try: "));
  CHECK_THAT(refusal([](auto& step) { step.loss(1), step.loss(2); }),
             Contains("loss of a step twice: 1 and 2") && Contains("Try: "));
  CHECK_THAT(refusal([](auto& step) { step.loss(1, 2.0F); }),
             Contains("reports 1 metrics, but its model names 0") && Contains("Try: "));
}

TEST_CASE("after a learner was refused on all replicas, training goes on", "[model]") {
  auto fails       = true;
  auto const model = custom_model<decay::Row>(
      decay::variables(),
      [&fails](auto& step, decay::Row const& batch) {
        auto const loss = decay::function(step, batch);
        if (fails) step.done(3);
        return loss;
      },
      optim::SGD{.learning_rate = 1e-3F});
  auto trainer      = Trainer{model, MirroredStrategy{Cpu::logical(3)}};
  auto const before = trainer.hashes();
  CHECK_THROWS_AS(trainer.fit(decay::data(), {.show = Show::nothing}), BadArgument);
  CHECK(trainer.hashes() == before);
  fails = false;
  CHECK(trainer.fit(decay::data(), {.show = Show::nothing})[0].scores.rows() == 203);
}
