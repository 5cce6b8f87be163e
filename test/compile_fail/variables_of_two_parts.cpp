// variables_of_two_parts.cpp   expect: chorale: a layer is called with whole sequences and with sequences of which each rank has a part, so its gradients would be added up over ranks by one call only. Use two layers
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::LayerNorm norm;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(norm(nn::gather_sequence<Ranks>(norm(nn::scatter_sequence<Ranks>(x)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
