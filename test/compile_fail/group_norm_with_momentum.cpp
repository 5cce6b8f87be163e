// group_norm_with_momentum.cpp   expect: chorale: GroupNorm takes a number of groups and one option, Epsilon<millionths>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GroupNorm<2, nn::Momentum<90>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
