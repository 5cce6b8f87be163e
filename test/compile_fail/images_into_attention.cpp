// images_into_attention.cpp   expect: chorale: MultiHeadAttention<heads, width> takes one or two sequences of numbers (B, T, C)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::MultiHeadAttention<2, 3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const { return nn::outputs<Priority>(priority(nn::Flatten{}(layer(image)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
