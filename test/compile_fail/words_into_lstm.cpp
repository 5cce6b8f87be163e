// words_into_lstm.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::LSTM<8> reader;
  nn::Dense<1> priority;
  constexpr auto operator()(auto ids) const { return nn::outputs<Priority>(priority(reader(words(ids)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
