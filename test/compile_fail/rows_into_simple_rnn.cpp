// rows_into_simple_rnn.cpp   expect: chorale: SimpleRNN takes sequences (B, T, C), a vector of numbers for each step; put nn::reshape<T, C>(...) before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::SimpleRNN<2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
