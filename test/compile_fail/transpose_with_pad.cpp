// transpose_with_pad.cpp   expect: chorale: Conv2DTranspose takes filters, a kernel size, then Valid or Same, Stride<n>, NoBias, and an initializer
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2DTranspose<2, 3, nn::Dilation<2>>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
