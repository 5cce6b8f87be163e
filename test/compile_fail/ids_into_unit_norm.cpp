// ids_into_unit_norm.cpp   expect: chorale: UnitNorm takes vectors of numbers (B, .., C)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<int, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(nn::UnitNorm{}(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
