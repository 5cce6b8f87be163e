// positions_of_fewer_steps.cpp   expect: chorale: Positions<steps, width> takes sequences (B, T, width) of at most that many steps
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Positions<5, 4>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
