// dense_of_a_part.cpp   expect: chorale: this layer has variables that the ranks of an axis share, and what comes in is not the same on all of them with a complete gradient (I), so that the gradients of the variables would be parts: put nn::all_reduce<Axis>(x), nn::all_gather<Axis>(x) or nn::count_once<Axis>(x) before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  nn::Dense<6> dense;

  constexpr auto operator()(auto x) const {
    auto const part = nn::on_one_rank<Tensor>(x);
    return nn::outputs<Score>(dense(part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
