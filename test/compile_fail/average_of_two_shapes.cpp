// average_of_two_shapes.cpp   expect: chorale: average takes numbers of one shape
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Other : Field<float, 5> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const { return nn::outputs<Out>(nn::average(x, other)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
