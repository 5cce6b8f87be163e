// pool_larger_than_image.cpp   expect: chorale: the window of this pool is larger than the image; use a smaller one, or the option Same
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MaxPool2D<9>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
