// dimensions_over_two_axes.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    using Context    = Axis<"context", 2>;
    auto const shard = nn::scatter<Tensor, 0>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::all_gather<Context>(nn::scatter<Context, 1>(shard))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
