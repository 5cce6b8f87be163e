// conv1d_longer_than_sequence.cpp   expect: chorale: the kernel of this Conv1D is longer than the sequence; use a shorter one, or the option Same
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::Conv1D<2, 7>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
