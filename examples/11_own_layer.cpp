// SPDX-License-Identifier: Apache-2.0
//
// Layers, a loss and a metric of one's own: a layer of two functions over a batch, one of two functions of a number, a
// layer made of layers, a loss that is one function of a row. Their gradients are compared with differences, then a
// network of them is trained on one replica and on three.
//
//   tools/run 11_own_layer
//
// Expect errors of gradients below 0.001, and for 1 and 3 replicas the same loss, such as
//   3 replicas: loss 0.0336 -> 0.0004, within 0.1: 1.00
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

using namespace chorale;

/// y = gamma x, with a trained gamma for each channel.
struct Scaled : nn::Layer<Scaled> {
  static constexpr std::string_view name = "scaled";
  static constexpr auto output(auto x) { return x; }
  static constexpr auto variables(auto x) { return std::array{nn::ones("gamma", x.back)}; }

  static void forward(auto& at) {
    for (std::size_t i = 0; i < at.x().size(); ++i) at.y()[i] = at.v[0][i % at.v[0].size()] * at.x()[i];
  }
  static void backward(auto& at) {  // gradients are zeros, or sums: add to them
    for (std::size_t i = 0; i < at.x().size(); ++i) {
      at.dv[0][i % at.v[0].size()] += at.dy()[i] * at.x()[i];
      if (!at.dx().empty()) at.dx()[i] += at.dy()[i] * at.v[0][i % at.v[0].size()];
    }
  }
};

/// y = x / (1 + |x|), element by element.
struct SoftSign : nn::Elementwise<SoftSign> {
  static constexpr std::string_view name = "soft_sign";
  static float f(float x) { return x / (1 + std::abs(x)); }
  static float df(float x, float) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); }
};

/// A layer made of layers: a struct with a call operator.
template <int Width> struct Mixed {
  nn::Dense<Width> in;
  Scaled scaled;
  constexpr auto operator()(auto x) const { return SoftSign{}(scaled(in(x))); }
};

/// The loss of a row: log cosh of what is missing.
struct LogCosh {
  using target = float;
  float row(Span<float const> y, Span<float const> wanted, Span<float> dy) const {
    auto sum = 0.0F;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += std::log(std::cosh(y[i] - wanted[i]));
      dy[i] = std::tanh(y[i] - wanted[i]);
    }
    return sum;
  }
};

/// The share of rows that are off by less than 0.1.
struct Within {
  static constexpr std::string_view name = "within_0_1";
  float row(Span<float const> y, Span<float const> wanted) const {
    return std::abs(y[0] - wanted[0]) < 0.1F ? 1.0F : 0.0F;
  }
};

struct Point : Field<float, 2> {};
struct Height : Field<float, 1> {};

struct Surface : nn::Graph<Point> {
  Mixed<32> first, second;
  nn::Dense<1> height;
  constexpr auto operator()(auto point) const { return nn::outputs<Height>(height(second(first(point)))); }
};

int main() try {
  auto const errors =
      std::array{nn::gradient_error<Scaled, nn::Of<float, 5>>(), nn::gradient_error<SoftSign, nn::Of<float, 7>>(),
                 nn::network_gradient_error<Surface>()};
  std::printf("errors of gradients: Scaled %.5f, SoftSign %.5f, the network %.5f\n", errors[0], errors[1], errors[2]);

  auto numbers = std::vector<float>(1'000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  auto const points = data::from_tensors(numbers, numbers, 1)
                          .map<Point, Height>([](auto const& row, auto& to) {
                            auto const draw = Random{Seed{1}, static_cast<std::uint64_t>(row.x[0])};
                            auto const x = draw.uniform(0, -2, 2), y = draw.uniform(1, -2, 2);
                            to[Point{}]  = {x, y};
                            to[Height{}] = {std::sin(x) * std::cos(y)};
                          })
                          .cache()
                          .shuffle(1'000)
                          .batch(40);

  auto const model = nn::compile<Surface>(LogCosh{}, optim::Adam{.learning_rate = 1e-2F}, Within{});
  auto last        = std::array<double, 2>{};
  for (auto const replicas : {1, 3}) {
    auto trainer       = Trainer{model, MirroredStrategy{Cpu::logical(replicas)}, Reproducible{}, LocalTransport{}, 1};
    auto const history = trainer.fit(points, {.epochs = 40, .show = Show::nothing});
    last[replicas == 1 ? 0 : 1] = history.back().scores.loss();
    std::printf("%d replica%s: loss %.4f -> %.4f, within 0.1: %.2f\n", replicas, replicas == 1 ? "" : "s",
                history.front().scores.loss(), history.back().scores.loss(), history.back().scores["within_0_1"]);
  }
  return std::ranges::max(errors) < 1e-3 && last[0] == last[1] && last[0] < 0.01 ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
