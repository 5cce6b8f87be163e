// ragged_in_one_field.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Title : Field<int, ragged> {};
struct Body : Field<int, ragged> {};
struct Topic : Field<float, 4> {};

struct Net : nn::Graph<Title, Body> {
  nn::Embedding<50, 4> words;
  constexpr auto operator()(auto title, auto body) const {
    return nn::outputs<Topic>(nn::GlobalAveragePool1D{}(words(title) + nn::tanh(words(title))));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
