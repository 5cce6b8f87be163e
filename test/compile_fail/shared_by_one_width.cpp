// shared_by_one_width.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<12> a;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(a(a(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
