// derivatives_multiplied.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

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
