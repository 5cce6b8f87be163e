// rows_of_whole_vectors.cpp   expect: chorale: nn::RowDense and nn::ColumnHeads take vectors of which each rank along their axis has a part, as nn::ColumnDense gives them. Put nn::ColumnDense over the same axis before it, or use nn::Dense
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::Dense<32> widen;
  nn::RowDense<Ranks, 24> narrow;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(nn::gelu(widen(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
