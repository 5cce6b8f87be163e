// SPDX-License-Identifier: Apache-2.0
//
// Derivatives of a network by its input, against differences in double precision, and what is learned through them.
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace derivatives_test {

using namespace chorale;

namespace {

struct Place : Field<float, 3> {};
template <int I> struct Part : Field<float, 1> {};

/// x^3 / 3
struct Third : nn::Elementwise<Third> {
  static constexpr std::string_view name = "third";
  static float f(float x) { return x * x * x / 3; }
  static float df(float x, float) { return x * x; }
  static float d2f(float x, float) { return 2 * x; }
  static float d3f(float, float) { return 2; }
};

/// Two layers with an activation, its value and five derivatives.
template <class Activation> struct Smooth : nn::Graph<nn::Differentiable<Place>> {
  nn::Block<nn::Dense<5>, Activation, nn::Dense<1>> layers;

  constexpr auto operator()(auto place) const {
    auto const [u, u_2, u_0, u_00, u_20, u_12] =
        nn::derivatives<nn::By<2>, nn::By<0>, nn::By<0, 0>, nn::By<2, 0>, nn::By<1, 2>>(layers, place);
    return nn::outputs<Part<0>, Part<1>, Part<2>, Part<3>, Part<4>, Part<5>>(u, u_2, u_0, u_00, u_20, u_12);
  }
};

/// All other layers that derivatives go through, and a layer that is called with and without them.
struct Mixed : nn::Graph<nn::Differentiable<Place>> {
  nn::Dense<3> in, other;
  nn::Dense<1> out;

  constexpr auto operator()(auto place) const {
    auto const net = [this](auto x) {
      auto const a = nn::tanh(in(x)), b = nn::sigmoid(other(x));
      return out(nn::concatenate(a * b - x, nn::average(a, b), a * a + Third{}(b)));
    };
    auto const [u, u_0, u_00, u_01] = nn::derivatives<nn::By<0>, nn::By<0, 0>, nn::By<0, 1>>(net, place);
    return nn::outputs<Part<0>, Part<1>, Part<2>, Part<3>, Part<4>>(u, u_0, u_00, u_01, net(place));
  }
};

/// The outputs of a network at a place, with variables between -1 and 1.
template <class Net> struct Computed {
  std::vector<float> place{0.3F, -0.7F, 0.2F}, zeros = std::vector<float>(1);
  std::vector<std::vector<double>> variables;
  std::vector<float> outputs;

  template <int... I> explicit Computed(std::integer_sequence<int, I...>) {
    constexpr auto objective = (nn::of<Part<I>>(loss::MeanSquaredError{}) + ...);
    auto copy    = nn::compile<Net>(objective, optim::SGD{.learning_rate = 0.1F}).instantiate(Cpu::logical(1)[0], 3);
    auto const v = copy.net.variables();
    for (std::size_t i = 0; i < v.size(); ++i) {
      for (std::size_t k = 0; k < v[i].value.size(); ++k) v[i].value[k] = Random{Seed{4}, i}.uniform(k, -1, 1);
      variables.emplace_back(v[i].value.begin(), v[i].value.end());
    }
    auto const y = copy.predict(Rows<Place>{place});
    outputs.assign(y.begin(), y.end());
  }
};

using Function = std::function<double(std::array<double, 3>)>;

/// A function's derivative by number i, by a central difference.
Function by(int i, Function f) {
  return [=](std::array<double, 3> x) {
    auto above = x, below = x;
    above[static_cast<std::size_t>(i)] += 1e-3, below[static_cast<std::size_t>(i)] -= 1e-3;
    return (f(above) - f(below)) / 2e-3;
  };
}

double at(Function const& f) { return f({0.3F, -0.7F, 0.2F}); }

/// Layer x W + b of variables 2 layer and 2 layer + 1, in double precision.
std::vector<double> dense(std::vector<std::vector<double>> const& v, std::size_t layer, std::vector<double> const& x) {
  auto y = v[2 * layer + 1];
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t c = 0; c < y.size(); ++c) y[c] += x[i] * v[2 * layer][i * y.size() + c];
  return y;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <class Activation> void check(double (*f)(double)) {
  INFO(Activation::name);
  auto const got    = Computed<Smooth<Activation>>{std::make_integer_sequence<int, 6>{}};
  auto const u      = Function{[&](std::array<double, 3> x) {
    auto h = dense(got.variables, 0, {x.begin(), x.end()});
    for (auto& one : h) one = f(one);
    return dense(got.variables, 1, h)[0];
  }};
  auto const wanted = std::array{u, by(2, u), by(0, u), by(0, by(0, u)), by(2, by(0, u)), by(1, by(2, u))};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    INFO(i);
    CHECK(std::abs(at(wanted[i])) > 1e-3);
    CHECK(std::abs(static_cast<double>(got.outputs[i]) - at(wanted[i])) < 5e-6);
  }
  CHECK(nn::network_gradient_error<Smooth<Activation>>() < 1e-3);
}

}  // namespace

TEST_CASE("first and second derivatives of activations are those of differences", "[nn][graph][derivatives]") {
  check<nn::Tanh>([](double x) { return std::tanh(x); });
  check<nn::Sigmoid>(sigmoid);
  check<nn::Softplus>([](double x) { return std::log1p(std::exp(x)); });
  check<nn::SiLU>([](double x) { return x * sigmoid(x); });
  check<nn::GELU>([](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; });
  check<Third>([](double x) { return x * x * x / 3; });
}

TEST_CASE("derivatives go through sums, products and concatenated values", "[nn][graph][derivatives]") {
  auto const got    = Computed<Mixed>{std::make_integer_sequence<int, 5>{}};
  auto const u      = Function{[&](std::array<double, 3> x) {
    auto a = dense(got.variables, 0, {x.begin(), x.end()}), b = dense(got.variables, 1, {x.begin(), x.end()});
    auto all = std::vector<double>(9);
    for (std::size_t c = 0; c < 3; ++c) {
      a[c] = std::tanh(a[c]), b[c] = sigmoid(b[c]);
      all[c]     = a[c] * b[c] - x[c];
      all[3 + c] = (a[c] + b[c]) / 2;
      all[6 + c] = a[c] * a[c] + b[c] * b[c] * b[c] / 3;
    }
    return dense(got.variables, 2, all)[0];
  }};
  auto const wanted = std::array{u, by(0, u), by(0, by(0, u)), by(0, by(1, u)), u};
  for (std::size_t i = 0; i < wanted.size(); ++i)
    CHECK(std::abs(static_cast<double>(got.outputs[i]) - at(wanted[i])) < 5e-6);
  CHECK(nn::network_gradient_error<Mixed>() < 1e-3);
}

TEST_CASE("a value with derivatives names its variables as one without", "[nn][graph][derivatives]") {
  constexpr auto const& plan = nn::plan_of<Mixed>;
  CHECK(plan.variables.size() == 6);
  CHECK(plan.parameters == 2 * 12 + 10);
  CHECK(std::string_view{plan.variables[0].name} == "dense/kernel");
  CHECK(std::string_view{plan.variables[5].name} == "dense_2/bias");
}

}  // namespace derivatives_test
