// rows_into_lstm.cpp   expect: chorale: LSTM takes sequences (B, T, C), a vector of numbers for each step; put nn::reshape<T, C>(...) before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Tags> {
  nn::LSTM<8> first, second;
  nn::Dense<1> priority;
  constexpr auto operator()(auto tags) const {
    return nn::outputs<Priority>(priority(second(first(nn::reshape<3, 4>(tags)))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
