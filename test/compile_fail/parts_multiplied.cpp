// parts_multiplied.cpp   expect: chorale: two parts of sums over one axis (P) are multiplied, and a product of sums is not the sum of products: put nn::all_reduce<Axis, nn::replicated>(x) around one of them
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
    return nn::outputs<Score>(nn::all_reduce<Tensor>(part * part));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
