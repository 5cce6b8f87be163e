// all_reduce_over_other_axis.cpp   expect: chorale: nn::all_reduce<Axis>(x) adds up parts of a sum (P) or, to nn::invariant, values of each rank (V), and what comes in along this axis is neither: what is the same on all ranks needs no sum, and for shards there is nn::all_gather. Is it another axis?
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Axis<"context", 2>>(part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
