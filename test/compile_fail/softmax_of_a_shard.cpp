// softmax_of_a_shard.cpp   expect: chorale: this layer works over a dimension that is sharded over an axis (S): put nn::all_gather<Axis>(x) before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const shard = nn::scatter<Tensor, 1>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::softmax(shard)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
