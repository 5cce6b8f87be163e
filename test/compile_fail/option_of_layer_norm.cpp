// option_of_layer_norm.cpp   expect: chorale: LayerNormWith takes one option, Epsilon<millionths> or EpsilonPower<power>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LayerNormWith<nn::NoBias> norm;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(norm(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
