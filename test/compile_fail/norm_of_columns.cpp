// norm_of_columns.cpp   expect: chorale: a layer needs whole vectors, but each rank has a part of them, as nn::ColumnDense and logits(x) of an nn::SplitEmbedding give them. Put nn::RowDense before it; activations, a + b, a - b, a * b and nn::ColumnHeads take parts
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
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(narrow(norm(widen(x)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
