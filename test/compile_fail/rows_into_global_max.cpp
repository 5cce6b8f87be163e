// rows_into_global_max.cpp   expect: chorale: GlobalMaxPool1D takes sequences (B, T, C) of numbers
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::GlobalMaxPool1D{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
