// numbers_into_embedding.cpp   expect: chorale: Embedding takes ids, a field of int or of bytes, but what comes in are numbers
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Embedding<9, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
