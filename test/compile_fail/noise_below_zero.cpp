// noise_below_zero.cpp   expect: chorale: GaussianNoise<Deviation> needs a standard deviation of at least 0
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GaussianNoise<-1>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
