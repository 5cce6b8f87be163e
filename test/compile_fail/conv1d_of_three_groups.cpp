// conv1d_of_three_groups.cpp   expect: chorale: Conv1D with Groups<n> needs channels and filters that are multiples of n
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<6, 3, nn::Groups<3>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
