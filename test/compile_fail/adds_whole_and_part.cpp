// adds_whole_and_part.cpp   expect: chorale: a shard of a value (S) meets a value that is not sharded alike over this axis: put nn::scatter<Axis, dim>(x) around that one, or nn::all_gather<Axis, nn::replicated>(x) around the shard
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 1>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 24> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(widen(x) + x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
