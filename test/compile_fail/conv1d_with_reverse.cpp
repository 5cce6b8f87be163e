// conv1d_with_reverse.cpp   expect: chorale: Conv1D takes filters, a kernel size, then Valid, Same, Pad<n> or Causal, Stride<n>, Dilation<n>, Groups<n>, NoBias, and an initializer
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<2, 3, nn::Reverse>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
