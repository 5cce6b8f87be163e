// scatter_of_no_dimension.cpp   expect: chorale: a value is cut along a dimension of its rows, counted from 0, that all rows have in one size: this one has no such dimension
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::scatter<Tensor, 2>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
