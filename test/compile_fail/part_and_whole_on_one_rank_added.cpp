// part_and_whole_on_one_rank_added.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const part  = nn::on_one_rank<Tensor>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part + nn::on_one_rank<Tensor>(other)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
