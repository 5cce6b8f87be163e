// zero_padding_of_rows.cpp   expect: chorale: ZeroPadding2D<top, bottom, left, right> takes images (B, H, W, C), and pads of at least 0
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::ZeroPadding2D<1, 1, 1, 1>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
