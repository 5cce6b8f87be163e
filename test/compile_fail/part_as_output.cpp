// part_as_output.cpp   expect: chorale: an output of this network is not whole on each rank, but a part of a sum over an axis (P), a shard (S) or a value of each rank (V): put nn::all_reduce<Axis>(x) or nn::all_gather<Axis>(x) before nn::outputs
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
    return nn::outputs<Score>(part);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
