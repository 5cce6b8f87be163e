// outputs_with_field.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};
struct Other : Field<float, 1> {};

struct Net : nn::Graph<In> {
  nn::Dense<1> a, b;
  constexpr auto operator()(auto x) const { return nn::outputs<Out, Other>(a(x), b(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
