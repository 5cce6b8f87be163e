// ragged_dimension_last.cpp   expect: chorale: a network takes fields whose first dimension alone may be ragged
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Frames : Field<float, 3, ragged> {};
struct Topic : Field<float, 2> {};

struct Net : nn::Graph<Frames> {
  nn::LSTM<4> reader;
  nn::Dense<2> topic;
  constexpr auto operator()(auto frames) const { return nn::outputs<Topic>(topic(reader(frames))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
