// SPDX-License-Identifier: Apache-2.0
//
// The CNN against PyTorch's numbers. README.md beside this file has the tolerances and where they come from.
#include "test/golden/formula.hpp"
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <string>

namespace cnn_test {

using namespace chorale;

namespace {

SafetensorsFile const& expected() {
  static auto const file = SafetensorsFile::read("test/golden/cnn.safetensors");
  return file;
}

/// The largest difference.
double error(Span<float const> got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  double apart = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    apart = std::max(apart, static_cast<double>(std::abs(got[i] - want[i])));
  return apart;
}

template <class Optimizer> struct Run {
  std::vector<float> x = golden::images();  // (16, 28, 28, 1)
  std::vector<int> y   = golden::labels();
  Batch batch{.x = x, .y = y, .rows = golden::rows};
  decltype(nn::compile<tiny::LeNet>(loss::SparseCrossEntropy{}, Optimizer{}).instantiate(Cpu{}, 1)) copy;

  explicit Run(Optimizer optimizer)
      : copy{nn::compile<tiny::LeNet>(loss::SparseCrossEntropy{}, optimizer).instantiate(Cpu{}, 1)} {
    for (std::size_t i = 0; i < golden::variables.size(); ++i) {
      auto const variable = copy.net.variables()[i];
      REQUIRE(variable.name == golden::variables[i].name);
      auto const values = golden::initial(golden::variables[i]);
      std::copy(values.begin(), values.end(), variable.value.begin());
    }
  }

  std::vector<float> ten_losses() {
    auto losses = std::vector<float>{};
    for (int step = 0; step < 10; ++step) {
      losses.push_back(copy.value_and_gradient(batch, 0, [](std::size_t) {}).mean());
      copy.optimizer.apply(copy.net.variables(), copy.gradients());
    }
    return losses;
  }
};

template <class Optimizer> void check_losses(std::string const& name, Optimizer optimizer) {
  INFO(name);
  auto const losses = Run{optimizer}.ten_losses();
  CHECK(error(losses, expected().floats("losses/" + name)) < 5e-6);
}

}  // namespace

TEST_CASE("the CNN's logits and loss are PyTorch's", "[golden][nn]") {
  auto run = Run{optim::SGD{}};
  CHECK(error(run.copy.predict(run.batch), expected().floats("logits")) < 1e-6);
  auto const loss = run.copy.value_and_gradient(run.batch, 0, [](std::size_t) {}).mean();
  CHECK(error(Span<float const>{&loss, 1}, expected().floats("loss")) < 2e-6);
}

TEST_CASE("every gradient of the CNN is PyTorch's", "[golden][nn]") {
  auto run = Run{optim::SGD{}};
  run.copy.value_and_gradient(run.batch, 0, [](std::size_t) {});
  auto const gradients = run.copy.gradients();
  for (std::size_t i = 0; i < golden::variables.size(); ++i) {
    auto mean = std::vector<float>(gradients[i].begin(), gradients[i].end());
    for (float& g : mean) g /= gradients.rows();
    INFO(golden::variables[i].name);
    CHECK(error(mean, expected().floats("gradient/" + std::string{golden::variables[i].name})) < 2e-7);
  }
}

TEST_CASE("ten losses of each optimizer are PyTorch's", "[golden][optim]") {
  using optim::Adam, optim::AdamW, optim::SGD;
  check_losses("sgd", SGD{.learning_rate = 0.1F});
  check_losses("sgd_momentum", SGD{.learning_rate = 0.05F, .momentum = 0.9F});
  check_losses("sgd_nesterov", SGD{.learning_rate = 0.05F, .momentum = 0.9F, .kind = SGD::Momentum::nesterov});
  check_losses("sgd_clipped", SGD{.learning_rate = 0.1F, .global_clipnorm = 0.5F});
  check_losses("adam", Adam{});
  check_losses("adam_clipped", Adam{.global_clipnorm = 0.5F});
  check_losses("adamw", AdamW{.weight_decay = 0.01F});
}

}  // namespace cnn_test
