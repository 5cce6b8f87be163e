// depthwise_larger_than_image.cpp   expect: chorale: the kernel of this DepthwiseConv2D is larger than the image; use a smaller one, or the option Same
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::DepthwiseConv2D<9>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
