// heads_with_reverse.cpp   expect: chorale: MultiHeadAttention takes heads, their width, and one option, nn::Causal
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::MultiHeadAttention<2, 2, nn::Reverse>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
