// gru_with_causal.cpp   expect: chorale: GRU takes the options nn::Sequences and nn::Reverse
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GRU<2, nn::Causal>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
