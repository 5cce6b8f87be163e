// recompute_of_layer_norm.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};
struct Net : nn::Graph<Pixels> {
  nn::Recompute<nn::Block<nn::Dense<8>, nn::LayerNorm>> hidden;
  nn::Dense<3> label;
  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(hidden(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
