// transpose_of_rows.cpp   expect: chorale: Conv2DTranspose takes images (B, H, W, C) but what comes in has another shape; put nn::reshape<H, W, C>(...) before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2DTranspose<2, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
