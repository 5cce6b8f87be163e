// recompute_of_batch_norm.cpp   expect: chorale: an nn::BatchNorm is in an nn::Recompute, which would move its statistics twice. Use nn::LayerNorm or nn::GroupNorm there, or leave nn::Recompute out
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Pixels : Field<float, 12> {};
struct Label : Field<int, 1> {};
struct Net : nn::Graph<Pixels> {
  nn::Recompute<nn::Block<nn::Dense<8>, nn::BatchNorm<>>> hidden;
  nn::Dense<3> label;
  constexpr auto operator()(auto x) const { return nn::outputs<Label>(label(hidden(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
