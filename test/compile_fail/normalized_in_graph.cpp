// normalized_in_graph.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};
struct Net : nn::Graph<Pixels> {
  nn::BatchNorm<> norm;
  nn::Dense<3> label;
  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(norm(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
