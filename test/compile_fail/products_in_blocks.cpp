// products_in_blocks.cpp   expect: chorale: both factors of a product differ between the ranks of one axis, so that each rank would have one block of many: put nn::all_gather<Axis, nn::replicated>(x) around one of them
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a = nn::scatter<Tensor, 0>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(nn::reshape<4, 6>(nn::concatenate(nn::dot(a, a), nn::dot(a, a)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
