// reduce_scatter_of_whole.cpp   expect: chorale: nn::reduce_scatter<Axis, dim>(x) adds up parts of a sum (P), and what comes in along this axis is no part. For a value that is the same on all ranks there is nn::scatter
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::reduce_scatter<Tensor, 0>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
