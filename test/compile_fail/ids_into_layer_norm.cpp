// ids_into_layer_norm.cpp   expect: chorale: LayerNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<int, 6> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::LayerNorm{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
