// experts_chosen_of_too_few.cpp   expect: chorale: Top<k> of Experts<A, experts, hidden> chooses more experts for a token than there are
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 2>, 4, 32, nn::Top<5>> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
