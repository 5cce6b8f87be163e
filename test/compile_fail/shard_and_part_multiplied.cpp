// shard_and_part_multiplied.cpp   expect: chorale: a shard (S) is multiplied with a part of a sum over the same axis (P), and needs the whole sum: put nn::all_reduce<Axis, nn::replicated>(x) around the part
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
    auto const y    = nn::all_gather<Tensor>(nn::dot(a, part));
    return nn::outputs<Score>(nn::concatenate(y, nn::slice<0, 2>(y)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
