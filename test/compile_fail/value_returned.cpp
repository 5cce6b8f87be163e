// value_returned.cpp   expect: chorale: the call operator of this network must return nn::outputs<Fields...>(...)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return priority(tags); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
