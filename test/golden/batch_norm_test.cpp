// SPDX-License-Identifier: Apache-2.0
//
// A CNN with two batch normalizations against PyTorch's numbers. README.md beside this file has the tolerances.
#include "test/golden/formula.hpp"
#include "test/support/tiny.hpp"

#include <chorale/nn/layers/batch_norm.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace chorale;

namespace {

template <template <class...> class Norm>
struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<8, 3>, Norm<>, nn::Tanh, nn::AveragePool2D<2>, nn::Flatten,
                            nn::Dense<16>, Norm<>, nn::Tanh, nn::Dense<10>> {};
using LocalNet = Net<nn::BatchNorm>;
using SyncNet  = Net<nn::SyncBatchNorm>;

struct Initial {
  std::string name;
  std::uint32_t salt;
  float scale, middle;
};

auto const initial = std::vector<Initial>{{"conv2d/kernel", 0x2545F491, 0x1p-1F, 0},
                                          {"conv2d/bias", 0x4F6CDD1D, 0x1p-3F, 0},
                                          {"batch_normalization/gamma", 0x7F4A7C15, 0x1p-1F, 1},
                                          {"batch_normalization/beta", 0x1CE4E5B9, 0x1p-2F, 0},
                                          {"dense/kernel", 0x133111EB, 0x1p-3F, 0},
                                          {"dense/bias", 0x5851F42D, 0x1p-3F, 0},
                                          {"batch_normalization_1/gamma", 0x2F4A7C15, 0x1p-1F, 1},
                                          {"batch_normalization_1/beta", 0x3CE4E5B9, 0x1p-2F, 0},
                                          {"dense_1/kernel", 0x433111EB, 1, 0},
                                          {"dense_1/bias", 0x6851F42D, 0x1p-3F, 0}};

double error(Span<float const> got, std::vector<float> const& want, float scale = 1) {
  REQUIRE(got.size() == want.size());
  double apart = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    apart = std::max(apart, static_cast<double>(std::abs(got[i] * scale - want[i])));
  return apart;
}

}  // namespace

TEMPLATE_TEST_CASE("a CNN with batch normalization trains, and is evaluated, as PyTorch's", "[golden][batch_norm]",
                   LocalNet, SyncNet) {
  auto const expected  = SafetensorsFile::read("test/golden/batch_norm.safetensors");
  auto const x         = golden::images();
  auto const y         = golden::labels();
  auto const batch     = Batch{.x = x, .y = y, .rows = golden::rows};
  auto const model     = nn::compile<TestType>(loss::SparseCrossEntropy{}, optim::SGD{.learning_rate = 0.1F});
  auto copy            = model.instantiate(Cpu{}, 1);
  auto const variables = copy.net.variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    auto const from = std::ranges::find(initial, variables[i].name, &Initial::name);
    if (from == initial.end()) continue;  // a moving statistic
    auto const value = variables[i].value;
    for (std::uint32_t k = 0; k < value.size(); ++k)
      value[k] = (golden::value(k, from->salt) - 0.5F) * from->scale + from->middle;
  }

  auto losses = std::vector<float>{};
  for (int step = 0; step < 5; ++step) {
    losses.push_back(copy.value_and_gradient(batch, 0, [](std::size_t) {}, Together{}).mean());
    for (std::size_t i = 0; step == 0 && i < variables.size(); ++i) {
      auto const name = std::string{variables[i].name};
      INFO(name);
      if (TestType::plan.variables[i].spec.trained())
        CHECK(error(copy.gradients()[i], expected.floats("gradient/" + name), 1.0F / golden::rows) < 3e-5);
    }
    copy.optimizer.apply(variables, copy.gradients());
  }
  CHECK(error(losses, expected.floats("losses")) < 2e-5);
  CHECK(error(copy.predict(batch), expected.floats("logits")) < 2.5e-5);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    INFO(variables[i].name);
    if (!TestType::plan.variables[i].spec.trained())
      CHECK(error(variables[i].value, expected.floats(variables[i].name)) < 1.5e-5);
  }
}
