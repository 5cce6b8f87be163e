// SPDX-License-Identifier: Apache-2.0
//
// Gradients of layers against central differences, and that rows have no influence on each other.
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace layer_gradient_test {

using namespace chorale;
using nn::Of;

namespace {

constexpr double rounding = 2e-3;

/// What a network computes of some rows: outputs, gradients by inputs and by variables.
struct Computed {
  std::vector<float> y, dv;
  std::vector<std::vector<float>> dx;
};

/// Computes rows [first, first + rows) of `x`.
template <class Net> Computed of_rows(std::vector<std::vector<float>> const& x, std::size_t first, int rows) {
  constexpr auto& plan = nn::plan_of<Net>;
  auto variables = std::vector<float>(plan.elements), gradients = variables;
  for (std::size_t i = 0; i < variables.size(); ++i) variables[i] = Random{Seed{3}, 0}.uniform(i, -0.5F, 0.5F);
  auto executor    = nn::GraphExecutor<Net, Cpu>{rows, variables, gradients};
  using Executing  = decltype(executor);
  auto const count = static_cast<std::size_t>(rows);
  auto const width = [&](std::size_t i) { return x[i].size() / 5; };
  for (std::size_t i = 0; i < Executing::num_inputs; ++i) executor.read(i, x[i].data() + first * width(i));
  auto const pass = Pass{.training = true, .now = {.seed = Seed{5}, .step = 2, .first_row = first}};
  executor.forward(pass);
  auto made = Computed{.y = {executor.output(0), executor.output(0) + count * Executing::width(0)}};
  for (std::size_t i = 0; i < made.y.size(); ++i)
    executor.d_output(0)[i] = Random{Seed{4}, 0}.uniform(first * Executing::width(0) + i, -1.0F, 1.0F);
  executor.backward(pass, LooksAtEnd{});
  for (std::size_t i = 0; i < Executing::num_inputs; ++i)
    made.dx.emplace_back(executor.d_input(i), executor.d_input(i) + count * width(i));
  made.dv = gradients;
  return made;
}

/// The largest difference between `both` and a followed by b.
float apart_from(std::vector<float> const& both, std::vector<float> a, std::vector<float> const& b) {
  a.insert(a.end(), b.begin(), b.end());
  REQUIRE(a.size() == both.size());
  auto apart = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) apart = std::max(apart, std::abs(a[i] - both[i]));
  return apart;
}

/// Gradients, and whether one row beside four has the numbers of five rows, and the sums of gradients agree.
///
/// within    the largest difference of a number; 0: the same bits
template <class L, class... O> void check(float within = 0) {
  using Net = nn::detail::Alone<L, std::index_sequence_for<O...>, O...>;
  INFO(type_name<L>());
  CHECK(nn::gradient_error<L, O...>() < rounding);
  auto x = std::vector<std::vector<float>>{};
  (x.push_back(std::vector<float>(5 * O::size)), ...);
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t k = 0; k < x[i].size(); ++k) x[i][k] = Random{Seed{i}, 1}.uniform(k, -1.0F, 1.0F);
  auto const five = of_rows<Net>(x, 0, 5), one = of_rows<Net>(x, 0, 1), four = of_rows<Net>(x, 1, 4);
  CHECK(apart_from(five.y, one.y, four.y) <= within);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(apart_from(five.dx[i], one.dx[i], four.dx[i]) <= within);
  auto apart = 0.0F;
  for (std::size_t i = 0; i < five.dv.size(); ++i)
    apart = std::max(apart, std::abs(one.dv[i] + four.dv[i] - five.dv[i]));
  CHECK(apart < 1e-4F);
}

using Sequence = Of<float, 6, 4>;
using Image    = Of<float, 5, 4, 4>;

struct X : Field<float, 6, 4> {};
struct Y : Field<float, 3> {};
struct Blocks : nn::Graph<nn::Differentiable<X>> {
  nn::Block<nn::Conv1D<4, 3, nn::Causal>, nn::RMSNorm<>, nn::Bidirectional<nn::GRU<3, nn::Sequences>>,
            nn::MultiHeadAttention<2, 2>, nn::PReLU<nn::PerChannel>, nn::TimeDistributed<nn::Dense<3>>,
            nn::GlobalAveragePool1D>
      layers;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(layers(x)); }
};

}  // namespace

TEST_CASE("gradients of recurrent layers agree with differences, row by row", "[nn][graph]") {
  constexpr auto rounding_of_products = 1e-6F;  // oneDNN takes other sums for one row
  check<nn::LSTM<3, nn::Reverse, nn::Sequences>, Sequence>(rounding_of_products);
  check<nn::LSTM<16>, Sequence>(rounding_of_products);
  check<nn::GRU<3>, Sequence>(rounding_of_products);
  check<nn::GRU<16, nn::Reverse, nn::Sequences>, Sequence>(rounding_of_products);
  check<nn::GRU<2>, Of<float, 1, 5>>(rounding_of_products);
  check<nn::SimpleRNN<3, nn::Sequences>, Sequence>(rounding_of_products);
  check<nn::SimpleRNN<3, nn::Reverse>, Sequence>(rounding_of_products);
}

TEST_CASE("gradients of attention and norms agree with differences, row by row", "[nn][graph]") {
  check<nn::MultiHeadAttention<2, 3>, Sequence>();
  check<nn::MultiHeadAttention<2, 3, nn::Causal>, Of<float, 40, 5>>();
  check<nn::MultiHeadAttention<2, 3>, Sequence, Of<float, 3, 5>>();
  check<nn::RMSNorm<nn::Epsilon<1000>>, Of<float, 35>>();
  check<nn::GroupNorm<2>, Image>();
  CHECK(nn::network_gradient_error<Blocks>() < rounding);
}

TEST_CASE("gradients of convolutions agree with differences, row by row", "[nn][graph]") {
  check<nn::Conv1D<16, 3, nn::Same, nn::Stride<2>, nn::NoBias>, Of<float, 7, 16>>();
  check<nn::Conv1D<1, 3, nn::Pad<1>>, Of<float, 7, 1>>();
  check<nn::Conv2D<4, 2, nn::KernelWidth<3>, nn::Groups<2>, nn::Dilation<2>, nn::Same>, Image>();
  check<nn::DepthwiseConv2D<2, nn::DepthMultiplier<2>, nn::Same, nn::Stride<2>>, Image>();
  check<nn::Conv2DTranspose<3, 3>, Image>();
  check<nn::Conv2DTranspose<16, 4, nn::Valid, nn::Stride<3>, nn::NoBias>, Of<float, 2, 3, 16>>();
}

TEST_CASE("gradients of pools and of layers that move pixels agree with differences, row by row", "[nn][graph]") {
  check<nn::MaxPool1D<3, nn::Same, nn::Stride<2>>, Sequence>();
  check<nn::AveragePool1D<3, nn::Pad<1>>, Sequence>();
  check<nn::GlobalMaxPool1D, Sequence>();
  check<nn::GlobalAveragePool2D, Image>();
  check<nn::UpSampling2D<2, 3>, Image>();
  check<nn::ZeroPadding2D<1, 2, 0, 1>, Image>();
  check<nn::Cropping2D<1, 0, 2, 1>, Image>();
}

TEST_CASE("gradients of layers that work on elements agree with differences, row by row", "[nn][graph]") {
  check<nn::PReLU<>, Sequence>();
  check<nn::GaussianNoise<30>, Sequence>();
  check<nn::Maximum, Sequence, Sequence>();
  check<nn::Minimum, Sequence, Sequence>();
  check<nn::Average, Sequence, Sequence, Sequence>();
  check<nn::Dot, Of<float, 5>, Of<float, 5>>();
  check<nn::Dot, Of<float, 2, 5>, Of<float, 3, 5>>();
}

TEST_CASE("Gaussian noise has its deviation, changes with the step, and is absent outside training", "[nn][graph]") {
  using Net = nn::detail::Alone<nn::GaussianNoise<50>, std::index_sequence<0>, Of<float, 1000>>;
  auto none = std::vector<float>(nn::plan_of<Net>.elements), no_gradients = none;
  auto executor  = nn::GraphExecutor<Net, Cpu>{2, none, no_gradients};
  auto const x   = std::vector<float>(2000, 1.0F);
  auto const run = [&](bool training, std::uint64_t step) {
    executor.read(0, x.data());
    executor.forward({.training = training, .now = {.seed = Seed{1}, .step = step}});
    return std::vector<float>{executor.output(0), executor.output(0) + 2000};
  };
  CHECK(run(false, 1) == x);
  auto const y = run(true, 1);
  CHECK(y == run(true, 1));
  CHECK(y != run(true, 2));
  auto mean = 0.0, square = 0.0;
  for (auto const v : y) {
    mean += static_cast<double>(v - 1) / 2000;
    square += static_cast<double>((v - 1) * (v - 1)) / 2000;
  }
  CHECK(std::abs(mean) < 0.05);
  CHECK(std::abs(std::sqrt(square) - 0.5) < 0.03);
}

}  // namespace layer_gradient_test
