// derivatives_of_vector.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

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
