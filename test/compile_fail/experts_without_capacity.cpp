// experts_without_capacity.cpp   expect: chorale: Capacity<Percent> of nn::Experts needs at least 1 percent of an even share
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<float, 8> {};
struct Net : nn::Graph<Words> {
  nn::Experts<Axis<"experts", 2>, 4, 32, nn::Capacity<0>> experts;
  constexpr auto operator()(auto words) const { return nn::outputs<Words>(experts(words)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
