// SPDX-License-Identifier: Apache-2.0
//
// A loss with derivatives by inputs, against the numbers of PyTorch, which differentiates them again. README.md beside
// this file has the tolerances and where they come from.
#include "test/golden/formula.hpp"

#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heat_test {

using namespace chorale;

namespace {

constexpr std::size_t rows = 7;

struct Inside : Field<float, 2> {};
struct Edge : Field<float, 2> {};
struct Residual : Field<float, 1> {};
struct Value : Field<float, 1> {};
template <int I> struct Part : Field<float, 1> {};

/// x times a number of percent
template <int Percent> struct Times : nn::Elementwise<Times<Percent>> {
  static constexpr std::string_view name = "times";
  static float f(float x) { return Percent / 100.0F * x; }
  static float df(float, float) { return Percent / 100.0F; }
};

struct Heat : nn::Graph<Inside, Edge> {
  nn::Block<nn::Dense<6>, nn::Tanh, nn::Dense<6>, nn::Sigmoid, nn::Dense<1>> layers;

  constexpr auto operator()(auto inside, auto edge) const {
    auto const [u, u_x, u_t, u_xx, u_xt] =
        nn::derivatives<nn::By<0>, nn::By<1>, nn::By<0, 0>, nn::By<0, 1>>(layers, inside);
    auto const residual = u_t - Times<25>{}(u_xx) + Times<50>{}(u_xt * u);
    return nn::outputs<Residual, Value, Part<0>, Part<1>, Part<2>, Part<3>, Part<4>>(residual, layers(edge), u, u_x,
                                                                                     u_t, u_xx, u_xt);
  }
};

double largest_difference(std::vector<float> const& got, std::vector<float> const& want) {
  REQUIRE(got.size() == want.size());
  auto most = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) most = std::max(most, static_cast<double>(std::abs(got[i] - want[i])));
  return most;
}

}  // namespace

TEST_CASE("steps of a loss with second derivatives are PyTorch's", "[golden][nn][graph][derivatives]") {
  auto const expected = SafetensorsFile::read("test/golden/heat.safetensors");
  auto const model =
      nn::compile<Heat>(nn::of<Residual>(loss::MeanSquaredError{}) + 2.0F * nn::of<Value>(loss::MeanSquaredError{}),
                        optim::Adam{.learning_rate = 0.01F, .epsilon = 1e-7F});
  auto copy    = model.instantiate(Cpu::logical(1)[0], 1);
  auto const v = copy.net.variables();
  REQUIRE(v.size() == 6);
  for (std::size_t i = 0; i < v.size(); ++i)
    std::ranges::copy(
        golden::initial({"", v[i].value.size(), static_cast<std::uint32_t>(0x11 * (i + 1)), i % 2 == 0 ? 4.0F : 1.0F}),
        v[i].value.begin());
  auto inside = std::vector<float>(2 * rows), edge = inside;
  for (std::uint32_t i = 0; i < inside.size(); ++i)
    inside[i] = golden::value(i, 0x77), edge[i] = golden::value(i, 0x88);
  auto const zeros = std::vector<float>(rows), values = golden::initial({"", rows, 0x99, 2});
  auto const batch  = Rows<Inside, Edge, Residual, Value>{inside, edge, zeros, values};
  auto const losses = expected.floats("losses");
  REQUIRE(losses.size() == 4);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    for (std::size_t k = 0; step == 0 && k < 5; ++k) {
      auto const y    = copy.predict(batch);  // (rows, 7)
      auto const name = std::vector<std::string>{"u", "u_x", "u_t", "u_xx", "u_xt"}[k];
      auto part       = std::vector<float>(rows);
      for (std::size_t r = 0; r < rows; ++r) part[r] = y[7 * r + 2 + k];
      INFO(name);
      CHECK(largest_difference(part, expected.floats(name)) < 5e-6);
    }
    auto const loss = copy.value_and_gradient(batch, 0, LooksAtEnd{});
    CHECK(std::abs(loss.value / rows - losses[step]) < 8e-6F);
    for (std::size_t i = 0; step == 0 && i < v.size(); ++i) {
      INFO(v[i].name);
      auto const sums = copy.gradients()[i];
      auto means      = std::vector<float>(sums.begin(), sums.end());
      for (auto& g : means) g /= static_cast<float>(rows);
      CHECK(largest_difference(means, expected.floats("gradient/" + std::string{v[i].name})) < 8e-6);
    }
    copy.optimizer.apply(v, copy.gradients());
  }
  for (std::size_t i = 0; i < v.size(); ++i) {
    INFO(v[i].name);
    CHECK(largest_difference({v[i].value.begin(), v[i].value.end()},
                             expected.floats("variable/" + std::string{v[i].name})) < 1.5e-6);
  }
}

}  // namespace heat_test
