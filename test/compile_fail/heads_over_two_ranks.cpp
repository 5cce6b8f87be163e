// heads_over_two_ranks.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 72, nn::Blocks<3>> look;
  nn::ColumnHeads<Ranks, 6> attend;
  nn::RowDense<Ranks, 24> join;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(join(attend(look(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
