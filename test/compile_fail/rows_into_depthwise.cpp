// rows_into_depthwise.cpp   expect: chorale: DepthwiseConv2D takes images (B, H, W, C) but what comes in has another shape
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::DepthwiseConv2D<3> layer;
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(layer(nn::reshape<96>(image)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
