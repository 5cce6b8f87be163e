// conv_with_causal.cpp   expect: chorale: Conv2D takes filters, a kernel size, then Valid, Same or Pad<n>, Stride<n>, NoBias, KernelWidth<n>, Dilation<n>, Groups<n>, and an initializer
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 8, 8, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv2D<2, 3, nn::Causal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
