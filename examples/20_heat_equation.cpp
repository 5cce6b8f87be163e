// SPDX-License-Identifier: Apache-2.0
//
// A network that solves a differential equation: u(x, t) of a bar whose ends are kept at 0, which loses its heat.
//
//   u_t = 0.1 u_xx        u(x, 0) = sin(pi x)        u(0, t) = u(1, t) = 0        0 <= x, t <= 1
//
// No solution is shown to it. The loss has its derivatives by x and t at random points inside, which nn::derivatives
// gives, and its values at random points of the edge. On one core: the network is small.
//
//   tools/run 20_heat_equation
//
// Expect the error against the closed solution, exp(-0.1 pi^2 t) sin(pi x), on a grid of 41 x 41 points: below 0.001
//   relative error 0.0005, largest 0.0008
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <numbers>
#include <string_view>
#include <vector>

using namespace chorale;

constexpr float pi = std::numbers::pi_v<float>, conductivity = 0.1F;

struct Inside : Field<float, 2> {};    // (B, 2): x, t
struct Edge : Field<float, 2> {};      // (B, 2): t is 0, or x is 0 or 1
struct Residual : Field<float, 1> {};  // u_t - 0.1 u_xx inside: 0
struct Value : Field<float, 1> {};     // u at the edge

struct Conducted : nn::Elementwise<Conducted> {
  static constexpr std::string_view name = "conducted";
  static float f(float x) { return conductivity * x; }
  static float df(float, float) { return conductivity; }
};

struct Heat : nn::Graph<Inside, Edge> {
  nn::Block<nn::Dense<32>, nn::Tanh, nn::Dense<32>, nn::Tanh, nn::Dense<1>> net;

  constexpr auto operator()(auto inside, auto edge) const {
    auto const [u, u_t, u_xx] = nn::derivatives<nn::By<1>, nn::By<0, 0>>(net, inside);
    return nn::outputs<Residual, Value>(u_t - Conducted{}(u_xx), net(edge));
  }
};

std::vector<float> count_to(std::size_t n) {
  auto numbers = std::vector<float>(n);
  for (std::size_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(i);
  return numbers;
}

int main() try {
  constexpr std::size_t points = 16'384, batch = 64, side = 41;
  constexpr int epochs = 100;
  auto const places    = count_to(points);
  auto const train     = data::from_tensors(places, places, 1)
                         .map<Inside, Edge, Residual, Value>([](auto const& row, auto& to) {
                           auto const draw = Random{Seed{2}, static_cast<std::uint64_t>(row.x[0])};
                           auto const part = draw.below(0, 4);  // half of the edge's points are at t = 0
                           auto const at   = draw.uniform(1);
                           to[Inside{}]    = {draw.uniform(2), draw.uniform(3)};
                           to[Edge{}]      = {part == 0 ? 0 : part == 1 ? 1 : at, part < 2 ? at : 0};
                           to[Residual{}]  = {0};
                           to[Value{}]     = {part < 2 ? 0 : std::sin(pi * at)};
                         })
                         .cache()
                         .shuffle(points)
                         .batch(batch);

  auto const rate  = optim::warm_up(100, 1e-2F).then(optim::cosine(epochs * points / batch, 1e-2F, 1e-5F));
  auto const error = loss::MeanSquaredError{};
  auto const model =
      nn::compile<Heat>(nn::of<Residual>(error) + 10.0F * nn::of<Value>(error), optim::Adam{.learning_rate = rate});
  auto trainer = Trainer{model, OneDeviceStrategy{Cpu::logical(1)[0]}, RingAllReduce{}, LocalTransport{}, 1};
  trainer.fit(train, {.epochs = epochs});

  auto const squares = count_to(side * side);
  auto const place   = [](std::size_t i) {  // x, t of a point of the grid
    return std::vector{static_cast<float>(i / side) / (side - 1), static_cast<float>(i % side) / (side - 1)};
  };
  auto const grid = data::from_tensors(squares, squares, 1)
                        .map<Inside, Edge>([&](auto const& row, auto& to) {
                          to[Inside{}] = to[Edge{}] = place(static_cast<std::size_t>(row.x[0]));
                        })
                        .batch(side);
  auto const y = trainer.predict(grid);  // (points, 2): residual, u
  auto largest = 0.0, squared = 0.0, all = 0.0;
  for (std::size_t i = 0; i < y.rows(); ++i) {
    auto const wanted = std::exp(-conductivity * pi * pi * place(i)[1]) * std::sin(pi * place(i)[0]);
    auto const apart  = std::abs(static_cast<double>(y[i][1] - wanted));
    largest           = std::max(largest, apart), squared += apart * apart, all += static_cast<double>(wanted * wanted);
  }
  auto const relative = std::sqrt(squared / all);  // |u - solution| / |solution|, in L2
  std::printf("relative error %.4f, largest %.4f\n", relative, largest);
  return relative < 1e-3 && largest < 5e-3 ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
