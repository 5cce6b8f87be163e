// scatter_of_even_dimension.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    using Three = Axis<"tensor", 3>;
    return nn::outputs<Score>(nn::all_gather<Three>(nn::scatter<Three, 1>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
