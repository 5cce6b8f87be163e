// transpose_of_image.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2DTranspose<2, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
