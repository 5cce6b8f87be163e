// shard_and_sum_multiplied.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a    = nn::scatter<Tensor, 0>(x);
    auto const part = nn::on_one_rank<Tensor>(x);
    auto const y    = nn::all_gather<Tensor>(nn::dot(a, nn::all_reduce<Tensor, nn::replicated>(part)));
    return nn::outputs<Score>(nn::concatenate(y, nn::slice<0, 2>(y)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
