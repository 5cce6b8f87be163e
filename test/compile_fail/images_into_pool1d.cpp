// images_into_pool1d.cpp   expect: chorale: a pool over steps takes sequences of numbers (B, T, C), with T at least its window
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Image : Field<float, 4, 4, 6> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Image> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto image) const {
    return nn::outputs<Priority>(priority(nn::Flatten{}(nn::MaxPool1D<2>{}(image))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
