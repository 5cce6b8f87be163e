// rows_into_attention.cpp   expect: chorale: CausalHeads<heads> takes sequences (B, T, 3 C), with C a multiple of the heads
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(nn::CausalHeads<2>{}(tags))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
