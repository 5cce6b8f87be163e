// rows_into_class_token.cpp   expect: chorale: ClassToken takes sequences of numbers (B, T, C)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::ClassToken token;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(token(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
