// derivatives_of_relu.cpp   expect: chorale: this layer has no second derivatives for nn::derivatives, which goes through nn::Dense, + - *, concatenate, Tanh, Sigmoid, Softplus, SiLU, GELU, and an nn::Elementwise with d2f and d3f
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

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
