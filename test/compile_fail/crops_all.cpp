// crops_all.cpp   expect: chorale: Cropping2D<top, bottom, left, right> takes images (B, H, W, C) that are larger than what it removes
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::Cropping2D<2>{}(image))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
