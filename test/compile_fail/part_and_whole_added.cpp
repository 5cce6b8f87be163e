// part_and_whole_added.cpp   expect: chorale: a part of a sum over an axis (P) and a whole value are added, so that each rank would add the whole: put nn::on_one_rank<Axis>(x) around the whole value, or nn::all_reduce<Axis>(x) around the part
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
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part + other));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
