// shard_and_slice_added.cpp   expect: chorale: a shard of a value (S) meets a value that is not sharded alike over this axis: put nn::scatter<Axis, dim>(x) around that one, or nn::all_gather<Axis, nn::replicated>(x) around the shard
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const shard = nn::scatter<Tensor, 1>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(nn::all_gather<Tensor>(shard + nn::slice<0, 3>(other)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
