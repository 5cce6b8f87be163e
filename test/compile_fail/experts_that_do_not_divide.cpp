// experts_that_do_not_divide.cpp   expect: chorale: Experts<A, experts, hidden> deals out its experts evenly
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 3>, 4, 32, nn::Uncounted> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
