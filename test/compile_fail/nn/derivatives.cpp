// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

// expect: chorale: an nn::By<i> or nn::By<i, j> counts the numbers of the input from 0, and the input has fewer
struct Place : Field<float, 2> {};
struct Residual : Field<float, 1> {};

struct Net : nn::Graph<Place> {
  nn::Block<nn::Dense<8>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto place) const {
    auto const [u, u_t, u_xx] = nn::derivatives<nn::By<2>, nn::By<0, 0>>(layers, place);
    return nn::outputs<Residual>(u_t - u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Place : Field<float, 2> {};
struct Residual : Field<float, 1> {};

struct Net : nn::Graph<Place> {
  nn::Block<nn::Dense<8>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto place) const {
    auto const [u, u_t, u_xx] = nn::derivatives<nn::By<0, 1>, nn::By<0, 0>>(layers, place);
    return nn::outputs<Residual>(u_t - u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: within nn::derivatives a layer combines a value that has derivatives with one that has none, or other ones. Make all of it from the argument of the function
struct Place : Field<float, 2> {};
struct Residual : Field<float, 1> {};

struct Net : nn::Graph<Place> {
  nn::Block<nn::Dense<8>, nn::Tanh, nn::Dense<1>> layers;
  nn::Dense<1> bump;
  constexpr auto operator()(auto place) const {
    auto const [u, u_t, u_xx] =
        nn::derivatives<nn::By<1>, nn::By<0, 0>>([&](auto x) { return layers(x) * bump(place); }, place);
    return nn::outputs<Residual>(u_t - u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Place : Field<float, 2> {};
struct Residual : Field<float, 1> {};

struct Net : nn::Graph<Place> {
  nn::Block<nn::Dense<8>, nn::Tanh, nn::Dense<1>> layers;
  nn::Dense<1> bump;
  constexpr auto operator()(auto place) const {
    auto const [u, u_t, u_xx] =
        nn::derivatives<nn::By<1>, nn::By<0, 0>>([&](auto x) { return layers(x) * bump(x); }, place);
    return nn::outputs<Residual>(u_t - u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: this layer has no second derivatives for nn::derivatives, which goes through nn::Dense, + - *, concatenate, Tanh, Sigmoid, Softplus, SiLU, GELU, and an nn::Elementwise with d2f and d3f
struct Place : Field<float, 2> {};
struct Residual : Field<float, 1> {};

struct Net : nn::Graph<Place> {
  nn::Block<nn::Dense<8>, nn::ReLU, nn::Dense<1>> layers;
  constexpr auto operator()(auto place) const {
    auto const [u, u_t, u_xx] = nn::derivatives<nn::By<1>, nn::By<0, 0>>(layers, place);
    return nn::outputs<Residual>(u_t - u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 2> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  nn::Block<nn::Dense<4>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto x) const {
    auto const [u, u_xx] = nn::derivatives<nn::By<0, 0>>(layers, x);
    return nn::outputs<Out>(u + u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::derivatives takes an input of numbers (B, N), e.g. of a Field<float, 2>, that is the same on all ranks
struct In : Field<float, 2, 2> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  nn::Block<nn::Dense<4>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto x) const {
    auto const [u, u_xx] = nn::derivatives<nn::By<0, 0>>(layers, x);
    return nn::outputs<Out>(u + u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Place : Field<float, 2> {};
struct Residual : Field<float, 1> {};

struct Net : nn::Graph<Place> {
  nn::Block<nn::Dense<8>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto place) const {
    auto const [u, u_t, u_xx] = nn::derivatives<nn::By<1>, nn::By<0, 0>>(layers, place);
    return nn::outputs<Residual>(u_t - u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: chorale: nn::derivatives gives first and second derivatives: nn::By<i> and nn::By<i, j>
struct In : Field<float, 2> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  nn::Block<nn::Dense<4>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto x) const {
    auto const [u, u_xxx] = nn::derivatives<nn::By<0, 0, 0>>(layers, x);
    return nn::outputs<Out>(u + u_xxx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct In : Field<float, 2> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  nn::Block<nn::Dense<4>, nn::Tanh, nn::Dense<1>> layers;
  constexpr auto operator()(auto x) const {
    auto const [u, u_xx] = nn::derivatives<nn::By<0, 0>>(layers, x);
    return nn::outputs<Out>(u + u_xx);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;

// expect: compiles
struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};
struct Net : nn::Graph<nn::Differentiable<Point>> {
  nn::Dense<1> layer;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layer(point)); }
};
void use() {
  auto copy = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 1);
  copy.gradient_by(Point{});
}

// expect: chorale: no step computes the gradient by an input that is nn::Differentiable<F, nn::OnRequest>
struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};
struct Net : nn::Graph<nn::Differentiable<Point, nn::OnRequest>> {
  nn::Dense<1> layer;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layer(point)); }
};
void use() {
  auto copy = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 1);
  copy.gradient_by(Point{});
}

// expect: chorale: gradient_by asks for an input that the network does not take as nn::Differentiable
struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};
struct Net : nn::Graph<Point> {
  nn::Dense<1> layer;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layer(point)); }
};
void use() {
  auto copy = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 1);
  copy.gradient_by(Point{});
}

// expect: compiles
struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};
struct Net : nn::Graph<nn::Differentiable<Point, nn::OnRequest>> {
  nn::Dense<1> layer;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layer(point)); }
};
void use() {
  auto copy = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 1);
  copy.gradient_by(Point{}, Rows<Point, IsReal>{{}, {}});
}
