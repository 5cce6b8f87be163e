// rows_of_parts_of_vectors.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::ColumnDense<Ranks, 32> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(nn::gelu(widen(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
