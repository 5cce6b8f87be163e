// part_and_own_added.cpp   expect: chorale: a part of a sum over an axis (P) meets a value that each rank has of its own (V): put nn::all_reduce<Axis, nn::replicated>(x) around the part
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
    auto const own  = nn::vary<Tensor>(x);
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part + own));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
