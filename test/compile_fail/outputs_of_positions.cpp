// outputs_of_positions.cpp   expect: chorale: an output of this network has a part of the positions on each rank. Put nn::gather_sequence<axis> before nn::outputs
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 6, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(norm(nn::scatter_sequence<Ranks>(x))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
