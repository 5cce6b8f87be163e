// SPDX-License-Identifier: Apache-2.0
//
// ResNet-20 against PyTorch's numbers. README.md beside this file has the tolerances.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>
#include <chorale/nn/networks/resnet.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace resnet_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 4, stored = 1024;

/// Sets variable number i to what the script begins with.
void fill(Variable const& v, PlannedVariable const& planned, std::size_t i) {
  auto const filters     = static_cast<std::size_t>(planned.spec.dims[static_cast<std::size_t>(planned.spec.rank) - 1]);
  auto const of_a_filter = static_cast<double>(planned.size / filters);
  auto const scale       = planned.spec.rank > 1 ? std::exp2(std::round(std::log2(std::sqrt(24 / of_a_filter)))) : 0.5;
  std::ranges::copy(
      golden::initial({"", v.value.size(), static_cast<std::uint32_t>(0x101 * (i + 1)), static_cast<float>(scale)}),
      v.value.begin());
  if (v.name.ends_with("gamma"))
    for (auto& gamma : v.value) gamma += 1;
}

/// Compares every n-th number, and the norm of all, with a file; both relative to the largest number that is stored.
void check_sample(std::vector<float> const& got, SafetensorsFile const& file, std::string const& name, double allow) {
  INFO(name);
  auto const want   = file.floats(name);
  auto const stride = (got.size() + stored - 1) / stored;
  REQUIRE(want.size() == (got.size() + stride - 1) / stride);
  auto apart = 0.0, largest = 0.0, squares = 0.0;
  for (std::size_t k = 0; k < want.size(); ++k) {
    apart   = std::max(apart, static_cast<double>(std::abs(got[k * stride] - want[k])));
    largest = std::max(largest, static_cast<double>(std::abs(want[k])));
  }
  CHECK(apart < allow * largest);
  for (auto const x : got) squares += static_cast<double>(x) * static_cast<double>(x);
  CHECK(std::sqrt(squares) == Approx(static_cast<double>(file.floats("norm/" + name)[0])).epsilon(allow));
}

double apart(Span<float const> got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  auto most = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) most = std::max(most, static_cast<double>(std::abs(got[i] - want[i])));
  return most;
}

}  // namespace

TEST_CASE("a step of ResNet-20 is PyTorch's", "[golden][nn]") {
  using Net           = nn::resnet::ResNet20<>;
  auto const expected = SafetensorsFile::read("test/golden/resnet.safetensors");
  auto const plain    = [](std::string names) { return optim::ParameterGroup{.names = names, .weight_decay = 0}; };
  auto const rule     = optim::SGD{
          .learning_rate = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F, .decay = optim::SGD::Decay::in_gradient};
  auto copy = nn::compile<Net>(loss::SparseCrossEntropy{},
                               optim::Grouped{rule, {plain("*bias"), plain("*gamma"), plain("*beta")}})
                  .instantiate(Cpu::logical(1)[0], 1);
  auto const v = copy.net.variables();
  auto trained = std::size_t{0};
  for (std::size_t i = 0; i < v.size(); ++i)
    if (Net::plan.variables[i].spec.trained()) fill(v[i], Net::plan.variables[i], trained++);
  auto x           = golden::initial({"", rows * 32 * 32 * 3, 0x6341CC9A, 4});
  auto y           = std::vector<int>{0, 7, 4, 1};
  auto const batch = Batch{.x = x, .y = y, .rows = rows};

  auto losses = std::vector<float>{};
  for (int step = 0; step < 2; ++step) {
    losses.push_back(copy.value_and_gradient(batch, 0, [](std::size_t) {}, Together{}).mean());
    for (std::size_t i = 0; step == 0 && i < v.size(); ++i) {
      if (!Net::plan.variables[i].spec.trained()) continue;
      auto const sums = copy.gradients()[i];
      auto means      = std::vector<float>(sums.begin(), sums.end());
      for (auto& g : means) g /= static_cast<float>(rows);
      check_sample(means, expected, "gradient/" + std::string{v[i].name}, 2e-4);
    }
    copy.optimizer.apply(v, copy.gradients());
    if (step > 0) continue;
    for (std::size_t i = 0; i < v.size(); ++i) {
      auto const name = std::string{v[i].name};
      INFO(name);
      if (Net::plan.variables[i].spec.trained()) {
        check_sample({v[i].value.begin(), v[i].value.end()}, expected, "variable/" + name, 4e-5);
        continue;
      }
      auto want = expected.floats(name);
      if (name.ends_with("variance")) {  // PyTorch's divides by the count less one
        auto const pixels = want.size() == 16 ? 4096 : want.size() == 32 ? 1024 : 256;
        for (auto& w : want) w = static_cast<float>(0.9 + (static_cast<double>(w) - 0.9) * (pixels - 1) / pixels);
      }
      CHECK(apart(v[i].value, want) < 9e-5);
    }
    CHECK(apart(copy.predict(batch), expected.floats("logits")) < 4e-2);  // of 198
  }
  CHECK(apart(losses, expected.floats("losses")) < 4e-5);
}

}  // namespace resnet_test
