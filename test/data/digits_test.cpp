// SPDX-License-Identifier: Apache-2.0
#include "sources.hpp"

#include <chorale/core/threads.hpp>
#include <chorale/data/digits.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace chorale;

namespace {

struct Drawn {
  std::array<std::uint8_t, data::digit_pixels> pixels{};
  std::uint8_t label = 0;

  Drawn(Seed seed, std::uint64_t index) { label = data::draw_digit(seed, index, pixels); }
  friend bool operator==(Drawn const&, Drawn const&) = default;
};

/// A linear model: softmax regression on (B, 784) pixels, by hand so that nothing but the digits is tested.
struct SoftmaxRegression {
  std::vector<float> w = std::vector<float>(784 * 10);  // (784, 10)
  std::array<float, 10> b{};

  std::array<float, 10> logits(float const* x) const {
    auto z = b;
    for (std::size_t i = 0; i < 784; ++i)
      for (std::size_t k = 0; k < 10; ++k) z[k] += x[i] * w[i * 10 + k];
    return z;
  }
  /// One step of gradient descent on one row.
  void learn(float const* x, int label, float rate) {
    auto z         = logits(x);
    auto const top = *std::max_element(z.begin(), z.end());
    auto sum       = 0.0F;
    for (auto& v : z) sum += v = std::exp(v - top);
    for (std::size_t k = 0; k < 10; ++k) z[k] = rate * (z[k] / sum - (static_cast<int>(k) == label ? 1.0F : 0.0F));
    for (std::size_t k = 0; k < 10; ++k) b[k] -= z[k];
    for (std::size_t i = 0; i < 784; ++i)
      for (std::size_t k = 0; k < 10; ++k) w[i * 10 + k] -= x[i] * z[k];
  }
};

}  // namespace

TEST_CASE("a digit is a function of seed and index", "[data]") {
  CHECK(Drawn{1, 7} == Drawn{1, 7});
  CHECK(Drawn{1, 7}.pixels != Drawn{1, 8}.pixels);
  CHECK(Drawn{1, 7}.pixels != Drawn{2, 7}.pixels);
}

TEST_CASE("a digit does not depend on how many are drawn, from where, or by which thread", "[data]") {
  auto const expect = [](data::Digits const& digits, std::uint64_t first) {
    auto stream = digits.stream(3);
    auto index  = first;
    for (Sample<std::uint8_t, std::uint8_t> row; stream.next(row); ++index) {
      auto const one = Drawn{5, index};
      if (row.y[0] != one.label || !std::equal(row.x.begin(), row.x.end(), one.pixels.begin())) return std::uint64_t{0};
    }
    return index - first;
  };
  CHECK(expect(data::digits(20, 5), 0) == 20);
  CHECK(expect(data::digits(7, 5, 13), 13) == 7);
  auto good = std::atomic<std::uint64_t>{0};
  {
    auto threads = std::vector<NamedThread>{};
    for (int i = 0; i < 4; ++i) threads.emplace_back("drawer", [&] { good += expect(data::digits(20, 5), 0); });
  }
  CHECK(good == 80);
}

TEST_CASE("all ten digits are drawn about equally often, with ink on paper", "[data]") {
  auto count  = std::array<int, 10>{};
  auto ink    = 0.0;
  auto stream = data::digits(2'000, 1).stream(0);
  for (Sample<std::uint8_t, std::uint8_t> row; stream.next(row);) {
    REQUIRE(row.x.size() == data::digit_pixels);
    ++count.at(row.y[0]);
    for (auto const p : row.x) ink += p > 127;
  }
  CHECK(*std::min_element(count.begin(), count.end()) > 140);  // 200 expected, standard deviation 13
  CHECK(*std::max_element(count.begin(), count.end()) < 260);
  CHECK(ink / 2'000 / data::digit_pixels > 0.05);
  CHECK(ink / 2'000 / data::digit_pixels < 0.25);
}

TEST_CASE("the number of digits is known, and none is none", "[data]") {
  CHECK(data::digits(20, 1).size() == 20);
  CHECK(data::digits(0, 1).batch(8).size() == 0);
  auto row = Sample<std::uint8_t, std::uint8_t>{};
  CHECK_FALSE(data::digits(0, 1).stream(0).next(row));
}

TEST_CASE("a linear model learns the digits, but not well: a convolution has something left to do", "[data][slow]") {
  auto model       = SoftmaxRegression{};
  auto const train = data::digits(6'000, 1).map(data::scale).cache().shuffle(6'000, 1);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    auto stream = train.stream(epoch);
    for (Sample<float, int> row; stream.next(row);)
      model.learn(row.x.data(), row.y[0], 0.01F / static_cast<float>(epoch + 1));
  }
  auto right = 0;
  auto test  = data::digits(2'000, 1, 6'000).map(data::scale).stream(0);
  for (Sample<float, int> row; test.next(row);) {
    auto const z = model.logits(row.x.data());
    right += std::max_element(z.begin(), z.end()) - z.begin() == row.y[0];
  }
  CHECK(right / 2'000.0 > 0.5);
  CHECK(right / 2'000.0 < 0.95);
  std::printf("a linear model has %.4f of the drawn digits right\n", right / 2'000.0);
}
