// epsilon_of_rms_norm.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::RMSNorm<nn::Epsilon<10>> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
