// input_changed_as_output.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(nn::relu(tags)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
