// columns_over_four_ranks.cpp   expect: chorale: the width of a ColumnDense, in each of its blocks, is a multiple of its parts, which are as many as the ranks of its axis, or 2, 4, 8 .. times as many. Change the width, or write nn::Parts<N>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 4>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 10> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
