// heads_of_positions.cpp   expect: chorale: a layer needs whole sequences, but each rank has a part of their positions. Put nn::gather_sequence<axis> before it, or give nn::ColumnDense the option nn::SplitSequence; attention over such parts is nn::RingHeads
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::Dense<72> look;
  nn::Heads<4> attend;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::gather_sequence<Ranks>(attend(look(nn::scatter_sequence<Ranks>(x))))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
