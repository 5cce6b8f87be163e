// SPDX-License-Identifier: Apache-2.0
//
// Gradients of networks derived from nn::Graph, and of each layer, against central differences.
#include <chorale/nn/derivatives/gradient_error.hpp>

#include "test/support/graph_nets.hpp"
#include "test/support/tiny.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

using namespace chorale;
using namespace chorale::test::graph_nets;
using Catch::Matchers::Contains;
using nn::Of;

namespace {

/// y = gamma x, by hand
struct Scaled : nn::Layer<Scaled> {
  static constexpr std::string_view name = "scaled";
  static constexpr auto output(auto x) { return x; }
  static constexpr auto variables(auto x) { return std::array{nn::ones("gamma", x.back)}; }
  static void forward(auto& at) {
    for (std::size_t i = 0; i < at.x().size(); ++i) at.y()[i] = at.v[0][i % at.v[0].size()] * at.x()[i];
  }
  static void backward(auto& at) {
    for (std::size_t i = 0; i < at.x().size(); ++i) {
      at.dv[0][i % at.v[0].size()] += at.dy()[i] * at.x()[i];
      if (!at.dx().empty()) at.dx()[i] += at.dy()[i] * at.v[0][i % at.v[0].size()];
    }
  }
};
struct Cube : nn::Elementwise<Cube> {
  static constexpr std::string_view name = "cube";
  static float f(float x) { return x * x * x; }
  static float df(float x, float /* y */) { return 3 * x * x; }
};
/// A factor is wrong.
struct WrongCube : nn::Elementwise<WrongCube> {
  static constexpr std::string_view name = "wrong_cube";
  static float f(float x) { return x * x * x; }
  static float df(float x, float) { return 2.9F * x * x; }
};
/// The gradient of the variable is twice what it should be.
struct WrongScale : nn::Layer<WrongScale> {
  static constexpr std::string_view name = "wrong_scale";
  static constexpr auto output(auto x) { return x; }
  static constexpr auto variables(auto x) { return Scaled::variables(x); }
  static void forward(auto& at) { Scaled::forward(at); }
  static void backward(auto& at) {
    Scaled::backward(at);
    for (auto& d : at.dv[0]) d *= 2;
  }
};
/// Two outputs: the halves of a vector.
struct Halves : nn::Layer<Halves> {
  static constexpr std::string_view name = "halves";
  template <int N> static constexpr auto output(Of<float, N>) {
    return nn::Several<Of<float, N / 2>, Of<float, N - N / 2>>{};
  }
  static void forward(auto& at) {
    each(at, std::get<0>(at.out), std::get<1>(at.out), at.x(), [](auto& y, auto x) { y = x; });
  }
  static void backward(auto& at) {
    each(at, at.d_out[0], at.d_out[1], at.dx(), [](auto y, auto& x) { x += y; });
  }

 private:
  static void each(auto& at, auto a, auto b, auto x, auto&& f) {
    auto const n = at.x().size() / at.rows, m = n / 2;
    for (std::size_t i = 0; i < x.size(); ++i) {
      auto const r = i / n, c = i % n;
      f(c < m ? a[r * m + c] : b[r * (n - m) + c - m], x[i]);
    }
  }
};

struct Left : Field<float, 6> {};
struct Right : Field<float, 6> {};
struct A : Field<float, 3> {};
struct B : Field<float, 6> {};

/// Two inputs, two outputs, a shared layer, fan-out, residuals, one value twice, an output that is read again.
struct Knotted : nn::Graph<nn::Differentiable<Left>, Right> {
  nn::Dense<6> shared, other;
  nn::Dense<3> last;
  Scaled scaled;

  constexpr auto operator()(auto left, auto right) const {
    auto const a = shared(left);
    auto const b = nn::tanh(other(shared(nn::sigmoid(right))));
    auto const c = a * b + a - Cube{}(b);
    auto const d = nn::gelu(scaled(c) + c);
    return nn::outputs<A, B>(last(d * d), d);
  }
};

/// An output that nobody reads, an output named twice, and a layer that no output depends on.
struct Loose : nn::Graph<Left> {
  nn::Dense<6> used, unused;
  constexpr auto operator()(auto x) const {
    auto const [low, high] = Halves{}(used(x));
    static_cast<void>(high), static_cast<void>(unused(x));
    return nn::outputs<A, B>(low, low);
  }
};

struct Image : Field<float, 6, 6, 2> {};
struct Pictures : nn::Graph<nn::Differentiable<Image>> {
  nn::Conv2D<8, 3, nn::Same> one;
  nn::Conv2D<8, 2, nn::Stride<2>> two;
  nn::Dense<3> last;
  constexpr auto operator()(auto x) const {
    auto const y = nn::tanh(one(x));
    return nn::outputs<A>(last(nn::Flatten{}(nn::AveragePool2D<3>{}(two(y + nn::sigmoid(y))))));
  }
};

struct Tied : Gpt2<Tokens, Next, 2, 8, 2, 11, 5> {};

struct Row : Field<float, 12> {};
struct Blocks : nn::Graph<Row> {
  nn::Block<nn::Dense<16>, nn::ReLU, nn::Residual<nn::Dense<16>, nn::Tanh>, nn::Dropout<30>, nn::Dense<3>> layers;
  constexpr auto operator()(auto x) const { return nn::outputs<A>(layers(x)); }
};

struct Words : nn::Graph<Tokens> {
  nn::Embedding<4, 3> table;
  constexpr auto operator()(auto ids) const { return nn::outputs<A>(table(ids)); }
};

struct Listed
    : nn::Sequential<nn::Input<12>, nn::Dense<16>, nn::ReLU, nn::Residual<nn::Dense<16>, nn::Tanh>, nn::Dense<3>> {};
struct Traced : nn::Graph<Row> {
  nn::Block<nn::Dense<16>, nn::ReLU, nn::Residual<nn::Dense<16>, nn::Tanh>, nn::Dense<3>> layers;
  constexpr auto operator()(auto x) const { return nn::outputs<A>(layers(x)); }
};

struct Twice : nn::Graph<Left> {
  nn::Dense<6> layer;
  constexpr auto operator()(auto x) const { return nn::outputs<B>(layer(x) + layer(x)); }
};
struct Once : nn::Graph<Left> {
  nn::Dense<6> layer;
  constexpr auto operator()(auto x) const { return nn::outputs<B>(layer(x)); }
};

constexpr double rounding = 2e-3;

}  // namespace

TEST_CASE("every layer's gradients agree with central differences", "[nn][graph]") {
  CHECK(nn::gradient_error<nn::Dense<4>, Of<float, 5>>() < rounding);
  CHECK(nn::gradient_error<nn::Dense<4>, Of<float, 3, 5>>() < rounding);
  CHECK(nn::gradient_error<nn::ReLU, Of<float, 9>>() < rounding);
  CHECK(nn::gradient_error<nn::Tanh, Of<float, 9>>() < rounding);
  CHECK(nn::gradient_error<nn::Sigmoid, Of<float, 4, 2>>() < rounding);
  CHECK(nn::gradient_error<nn::GELU, Of<float, 9>>() < rounding);
  CHECK(nn::gradient_error<nn::GELUTanh, Of<float, 9>>() < rounding);
  CHECK(nn::gradient_error<nn::Softmax, Of<float, 3, 4>>() < rounding);
  CHECK(nn::gradient_error<nn::LayerNorm, Of<float, 4, 6>>() < rounding);
  CHECK(nn::gradient_error<nn::BatchNorm<>, Of<float, 3, 3, 2>>() < rounding);
  CHECK(nn::gradient_error<nn::Embedding<4, 3>, Of<int, 6>>() < rounding);
  CHECK(nn::gradient_error<nn::Positions<6, 3>, Of<float, 4, 3>>() < rounding);
  CHECK(nn::gradient_error<nn::CausalHeads<2>, Of<float, 4, 12>>() < rounding);
  CHECK(nn::gradient_error<nn::Heads<2>, Of<float, 4, 12>>() < rounding);
  CHECK(nn::gradient_error<nn::ClassToken, Of<float, 4, 3>>() < rounding);
  CHECK(nn::gradient_error<nn::UnitNorm, Of<float, 4, 3>>() < rounding);
  CHECK(nn::gradient_error<nn::LayerNormWith<nn::EpsilonPower<12>>, Of<float, 4, 6>>() < rounding);
  CHECK(nn::gradient_error<nn::LSTM<3>, Of<float, 4, 2>>() < rounding);
  CHECK(nn::gradient_error<nn::LSTM<3>, Of<float, 1, 5>>() < rounding);
  CHECK(nn::gradient_error<nn::LSTM<2, nn::Sequences>, Of<float, 5, 3>>() < rounding);
  CHECK(nn::gradient_error<nn::Dropout<30>, Of<float, 20>>() < rounding);
  CHECK(nn::gradient_error<nn::Flatten, Of<float, 2, 3, 2>>() < rounding);
  CHECK(nn::gradient_error<nn::Conv2D<3, 2>, Of<float, 4, 4, 2>>() < rounding);
  CHECK(nn::gradient_error<nn::MaxPool2D<2>, Of<float, 4, 4, 2>>() < rounding);
  CHECK(nn::gradient_error<nn::Reshape<6, 2>, Of<float, 3, 4>>() < rounding);
  CHECK(nn::gradient_error<nn::Permute<2, 0, 1>, Of<float, 2, 3, 4>>() < rounding);
  CHECK(nn::gradient_error<nn::Slice<1, 3>, Of<float, 2, 4>>() < rounding);
  CHECK(nn::gradient_error<nn::Slice<1, 3, 0>, Of<float, 4, 2>>() < rounding);
  CHECK(nn::gradient_error<nn::Concatenate, Of<float, 2, 3>, Of<float, 2, 4>, Of<float, 2, 1>>() < rounding);
  CHECK(nn::gradient_error<nn::Subtract, Of<float, 5>, Of<float, 5>>() < rounding);
  CHECK(nn::gradient_error<nn::Multiply, Of<float, 5>, Of<float, 5>>() < rounding);
  CHECK(nn::gradient_error<nn::Add, Of<float, 5>, Of<float, 5>>() < rounding);
  CHECK(nn::gradient_error<Scaled, Of<float, 5>>() < 1e-3);
  CHECK(nn::gradient_error<Cube, Of<float, 5>>() < 1e-3);
  CHECK(nn::gradient_error<Halves, Of<float, 7>>() < rounding);
}

TEST_CASE("a wrong factor in a gradient is found", "[nn][graph]") {
  CHECK(nn::gradient_error<WrongCube, Of<float, 5>>() > 0.02);
  CHECK(nn::gradient_error<WrongScale, Of<float, 5>>() > 0.1);
}

TEMPLATE_TEST_CASE("every gradient of a network agrees with central differences", "[nn][graph]", Knotted, Loose,
                   Pictures, Tied, Blocks) {
  CHECK(nn::network_gradient_error<TestType>() < 5e-3);
}

TEST_CASE("a Graph computes the bits of the Sequential of its layers", "[nn][graph]") {
  auto const batch = tiny::batch<float>(5, 12, 3);
  auto copy        = nn::compile<Listed>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 3);
  copy.value_and_gradient(batch.view(), 0, [](std::size_t) {});

  auto gradients = std::vector<float>(nn::plan_of<Traced>.elements);
  auto executor  = nn::GraphExecutor<Traced, Cpu>{5, copy.net.variables().values, gradients};
  executor.read(0, batch.view().x.data());
  executor.forward({.training = true});
  auto const y      = Span<float const>{executor.output(0), 15};
  auto const wanted = copy.predict(batch.view());
  CHECK(std::equal(y.begin(), y.end(), wanted.begin(), wanted.end()));

  Kernels<Cpu>::squared_error(5, 3, executor.output(0), batch.view().y.data(), executor.d_output(0));
  auto ends = std::vector<std::size_t>{};
  executor.backward({.training = true}, [&](std::size_t end) { ends.push_back(end); });
  CHECK(ends.size() == 3);
  CHECK(ends.back() == nn::plan_of<Traced>.elements - plan::trailer);
  auto const body = Range{plan::header, gradients.size() - plan::trailer};
  for (std::size_t i = body.begin; i < body.end; ++i) CHECK(gradients[i] == copy.gradients().values[i]);
}

TEST_CASE("a layer that is called twice adds up the gradients of both calls", "[nn][graph]") {
  auto const x         = std::vector<float>(12, 0.5F);
  auto const variables = std::vector<float>(nn::plan_of<Once>.elements, 0.25F);
  auto const gradients = [&]<class Net>(Net) {
    auto own      = variables;
    auto d        = std::vector<float>(own.size());
    auto executor = nn::GraphExecutor<Net, Cpu>{2, own, d};
    executor.read(0, x.data());
    executor.forward({.training = true});
    std::fill_n(executor.d_output(0), 12, 1.0F);
    executor.backward({.training = true}, LooksAtEnd{});
    return d;
  };
  auto const once = gradients(Once{}), twice = gradients(Twice{});
  for (std::size_t i = plan::header; i < once.size() - plan::trailer; ++i) CHECK(twice[i] == 2 * once[i]);
}

TEST_CASE("an id that is in no row of the table names the row, the field and both numbers", "[nn][graph]") {
  auto variables = std::vector<float>(PlanView{nn::plan_of<Words>}.values()), gradients = variables;
  auto tables    = row_gradients_of(nn::plan_of<Words>);
  auto executor  = nn::GraphExecutor<Words, Cpu>{2, variables, gradients, tables};
  auto const ids = std::vector{0, 1, 2, 3, 0, 1, 2, 4, 0, 0};
  executor.read(0, ids.data());
  CHECK_THROWS_WITH(executor.forward({}), Contains("row 1 of the batch has id 4 at position 2 of field") &&
                                              Contains("Tokens") && Contains("4 rows, 0 to 3"));
}
