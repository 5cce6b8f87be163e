// replicated_twice.cpp   expect: chorale: this conversion does not take what comes in along this axis: replicate takes I, count_once R, on_one_rank I or R, vary I, R or S, as_parts and as_shards V, pad S, and all_to_all S of another dimension
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    return nn::outputs<Score>(nn::replicate<Tensor>(nn::replicate<Tensor>(x)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
