// gelu_of_a_part.cpp   expect: chorale: this layer is not linear, and what comes in is a part of a sum over an axis (P): put nn::all_reduce<Axis>(x) before it
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
    return nn::outputs<Score>(nn::all_reduce<Tensor>(nn::gelu(part)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
