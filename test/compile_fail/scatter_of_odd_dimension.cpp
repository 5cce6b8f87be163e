// scatter_of_odd_dimension.cpp   expect: chorale: a dimension is cut into equal shards, and its size is no multiple of the number of ranks of the axis
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    using Five = Axis<"tensor", 5>;
    return nn::outputs<Score>(nn::all_gather<Five>(nn::scatter<Five, 1>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
