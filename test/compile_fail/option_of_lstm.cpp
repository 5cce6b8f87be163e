// option_of_lstm.cpp   expect: chorale: LSTM takes the options nn::Sequences and nn::Reverse
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LSTM<8, nn::NoBias> first;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const { return nn::outputs<Priority>(priority(first(nn::reshape<3, 4>(tags)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
