// dense_of_both.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Other : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In, Other> {
  constexpr auto operator()(auto x, auto other) const {
    return nn::outputs<Out>(nn::Dense<2>{}(nn::concatenate(x, other)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
