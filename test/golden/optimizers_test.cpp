// SPDX-License-Identifier: Apache-2.0
//
// Groups of variables, moving averages and joined schedules against Optax and Keras. README.md beside this file has the
// tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace optimizers_test {

using namespace chorale;

namespace {

SafetensorsFile const& expected() {
  static auto const file = SafetensorsFile::read("test/golden/optimizers.safetensors");
  return file;
}

/// Three variables, and ten steps of an optimizer that get their gradients from the formula.
template <class O> class Run {
 public:
  explicit Run(O const& rule)
      : slots_(plan_.elements * static_cast<std::size_t>(O::slots)), values_(plan_.elements),
        gradients_(plan_.elements), optimizer{rule, plan_, slots_} {
    for (std::uint32_t i = 0; i < 3; ++i) fill(variables()[i].value, 0x2545F491U * (i + 1), 2);
    auto const g = Gradients{gradients_, plan_.variables, plan_.ends(), 1};
    for (std::uint32_t step = 0; step < 10; ++step) {
      std::ranges::fill(gradients_, 0.0F);
      g.header().rows() = 1;
      for (std::uint32_t i = 0; i < 3; ++i) fill(g[i], 0x3C6EF372U * i + 0x5851F42DU * (step + 1), 4);
      optimizer.apply(variables(), g);
    }
  }

  Variables variables() { return {values_, plan_.variables}; }

  void check(std::string const& what) {
    for (std::size_t i = 0; i < 3; ++i) {
      auto const v    = variables()[i];
      auto const want = expected().floats(what + "/" + std::string{v.name});
      INFO(what << " " << v.name);
      for (std::size_t k = 0; k < want.size(); ++k) CHECK(std::abs(v.value[k] - want[k]) < 2.6e-6);
    }
  }

 private:
  static void fill(Span<float> to, std::uint32_t salt, float scale) {
    std::ranges::copy(golden::initial({"", to.size(), salt, scale}), to.begin());
  }

  RunTimePlan owner_{{{"layer/kernel", {4, 3}}, {"layer/bias", {3}}, {"head/kernel", {5}}}};
  PlanView plan_{owner_};
  std::vector<float> slots_, values_, gradients_;

 public:
  OptimizerState<Cpu, O> optimizer;
};

}  // namespace

TEST_CASE("groups of variables are updated as by Optax, one of them frozen", "[golden][optim]") {
  auto run =
      Run{optim::Grouped{optim::AdamW{.learning_rate = 0.02F, .weight_decay = 0.1F, .global_clipnorm = 0.5F},
                         {optim::frozen("head*"), {.names = "*/bias", .learning_rate = 0.5F, .weight_decay = 0}}}};
  run.check("groups");
}

TEST_CASE("moving averages of variables are Keras'", "[golden][optim]") {
  auto run = Run{optim::Averaged{optim::SGD{.learning_rate = 0.1F, .momentum = 0.9F}, 0.75F}};
  run.check("trained");
  run.optimizer.put_averages(run.variables());
  run.check("averages");
}

TEST_CASE("other optimizers are Keras'", "[golden][optim]") {
  Run{optim::RMSprop{.learning_rate = 0.01F}}.check("rmsprop");
  Run{optim::RMSprop{.learning_rate = 0.01F, .rho = 0.75F, .momentum = 0.5F, .epsilon = 1e-3F}}.check(
      "rmsprop_momentum");
  Run{optim::RMSprop{.learning_rate = 0.01F, .centered = true}}.check("rmsprop_centered");
  Run{optim::RMSprop{.learning_rate = 0.01F, .momentum = 0.9F, .centered = true}}.check("rmsprop_both");
  Run{optim::Nadam{.learning_rate = 0.01F}}.check("nadam");
  Run{optim::Lion{.learning_rate = 0.01F}}.check("lion");
  Run{optim::Lion{.learning_rate = 0.01F, .weight_decay = 0.25F}}.check("lion_decay");
  Run{optim::Lamb{.learning_rate = 0.01F}}.check("lamb");
  Run{optim::Lamb{.learning_rate = 0.01F, .weight_decay = 0.25F, .epsilon = 1e-3F}}.check("lamb_decay");
}

TEST_CASE("a warm-up and then a cosine are the schedule of Optax and of Keras", "[golden][optim]") {
  auto const rate = optim::warm_up(8, 0.4F).then(optim::cosine(16, 0.4F, 0.1F));
  auto const want = expected().floats("schedule");
  for (std::size_t step = 0; step < want.size(); ++step)
    CHECK(std::abs(rate({.step = static_cast<std::int64_t>(step)}) - want[step]) < 1e-7F);
}

}  // namespace optimizers_test
