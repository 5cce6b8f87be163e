// slice_beyond_end.cpp   expect: chorale: slice<begin, end, axis> takes a part of one dimension: 0 <= begin < end <= size
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Slice<2, 5>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
