// interaction_of_one_width.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  nn::Dense<4> a;
  nn::Dense<4> b;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(nn::interaction(a(tags), b(tags))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
