// pool_of_rows.cpp   expect: chorale: a pool takes images (B, H, W, C) but the layer before gives rows of numbers
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MaxPool2D<2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
