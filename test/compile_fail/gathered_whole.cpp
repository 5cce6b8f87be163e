// gathered_whole.cpp   expect: chorale: nn::gather_sequence, nn::RingHeads, nn::SplitLayerNorm and nn::SplitSequence need sequences of which each rank along their axis has a part. Put nn::scatter_sequence<axis> before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::gather_sequence<Ranks>(norm(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
