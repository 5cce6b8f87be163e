// fields_without_parameter.cpp   expect: chorale: the call operator of this network does not take what nn::Graph<...> names: one parameter for each field, in that order
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags, Words> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(tags)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
