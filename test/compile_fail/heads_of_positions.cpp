// heads_of_positions.cpp   expect: chorale: this layer works over a dimension that is sharded over an axis (S): put nn::all_gather<Axis>(x) before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct In : Field<float, 12, 24> {};
struct Out : Field<float, 12, 24> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<In> {
  nn::Dense<72> look;
  nn::Heads<4> attend;
  constexpr auto operator()(auto x) const {
    return nn::outputs<Out>(nn::gather_sequence<Ranks>(attend(look(nn::scatter_sequence<Ranks>(x)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
