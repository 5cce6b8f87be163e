// layers_of_two_names.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<4> a{"body"};
  nn::Dense<1> b{"head"};
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(b(a(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
