// SPDX-License-Identifier: Apache-2.0
#include "formula.hpp"

#include <chorale/checkpoint/safetensors.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;

namespace {

using Values = std::vector<float>;

/// Adds the product of x with a (In, Units) kernel, from the row `first` on, to y: (In) x (In, Units) -> (Units)
void add_product(double x, Values const& kernel, std::size_t row, std::vector<double>& y) {
  for (std::size_t u = 0; u < y.size(); ++u) y[u] += x * static_cast<double>(kernel[row * y.size() + u]);
}

std::vector<double> widened(Values const& values) { return {values.begin(), values.end()}; }

/// The CNN by its definition, in double: the logits of one image (28, 28, 1).
std::vector<double> logits_of(float const* image, std::map<std::string_view, Values> const& v) {
  auto const convolved = [&](std::size_t y, std::size_t x) {  // (32)
    auto sums = widened(v.at("conv2d/bias"));
    for (std::size_t kh = 0; kh < 3; ++kh)
      for (std::size_t kw = 0; kw < 3; ++kw)
        add_product(static_cast<double>(image[(y + kh) * 28 + x + kw]), v.at("conv2d/kernel"), kh * 3 + kw, sums);
    return sums;
  };
  auto hidden = widened(v.at("dense/bias"));
  for (std::size_t y = 0; y < 13; ++y)
    for (std::size_t x = 0; x < 13; ++x) {
      auto pooled = std::vector<double>(32);  // ReLU: no maximum is below 0
      for (std::size_t k = 0; k < 4; ++k) {
        auto const sums = convolved(2 * y + k / 2, 2 * x + k % 2);
        for (std::size_t c = 0; c < 32; ++c) pooled[c] = std::max(pooled[c], sums[c]);
      }
      for (std::size_t c = 0; c < 32; ++c) add_product(pooled[c], v.at("dense/kernel"), (y * 13 + x) * 32 + c, hidden);
    }
  auto logits = widened(v.at("dense_1/bias"));
  for (std::size_t u = 0; u < 64; ++u) add_product(std::max(hidden[u], 0.0), v.at("dense_1/kernel"), u, logits);
  return logits;
}

}  // namespace

TEST_CASE("the formula gives the bits that Python has", "[golden]") {
  CHECK(golden::value(0, 0) == 0.0F);
  CHECK(golden::value(1, 0) == 0x1.3c6ef2p-1F);
  CHECK(golden::value(0, 0x2545F491) == 0x1.2a2fap-3F);
  CHECK(golden::value(4, 0x2545F491) == 0x1.3c47b6p-1F);
  CHECK(golden::value(346'111, 0x7F4A7C15) == 0x1.b78394p-1F);  // i · 2654435761 has long left 32 bits
}

TEST_CASE("the stored logits and the loss are those of the network, computed by its definition", "[golden]") {
  auto const file = SafetensorsFile::read("test/golden/cnn.safetensors");
  auto variables  = std::map<std::string_view, Values>{};
  for (auto const& variable : golden::variables) variables[variable.name] = golden::initial(variable);
  auto const images = golden::images();
  auto const labels = golden::labels();
  auto const stored = file.floats("logits");
  REQUIRE(stored.size() == golden::rows * 10);

  auto loss = 0.0;
  for (std::size_t row = 0; row < golden::rows; ++row) {
    auto const logits = logits_of(images.data() + row * 28 * 28, variables);
    auto sum          = 0.0;
    for (std::size_t c = 0; c < 10; ++c) {
      CHECK(std::abs(logits[c] - static_cast<double>(stored[row * 10 + c])) < 1e-8);  // stored as float32: 4e-9
      sum += std::exp(logits[c]);
    }
    loss += (std::log(sum) - logits[static_cast<std::size_t>(labels[row])]) / golden::rows;
  }
  CHECK(std::abs(loss - static_cast<double>(file.floats("loss").at(0))) < 2e-7);  // 1.2e-7
}

TEST_CASE("every variable has a gradient of its size, and every optimizer ten losses from the same start", "[golden]") {
  auto const file = SafetensorsFile::read("test/golden/cnn.safetensors");
  for (auto const& variable : golden::variables)
    CHECK(file.floats("gradient/" + std::string{variable.name}).size() == variable.size);
  for (auto const* name : {"adam", "adam_clipped", "adamw", "sgd", "sgd_clipped", "sgd_momentum", "sgd_nesterov"}) {
    auto const losses = file.floats("losses/" + std::string{name});
    REQUIRE(losses.size() == 10);
    CHECK(losses.front() == file.floats("loss").front());
    CHECK(losses.back() < losses.front());
  }
}
