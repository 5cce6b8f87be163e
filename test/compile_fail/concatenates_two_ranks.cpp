// concatenates_two_ranks.cpp   expect: chorale: concatenate takes values that differ in their last dimension alone
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Other : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::concatenate(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
