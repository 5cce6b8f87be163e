// ragged_into_pool.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, ragged> {};
struct Topic : Field<float, 2> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<2> topic;
  constexpr auto operator()(auto ids) const { return nn::outputs<Topic>(topic(nn::GlobalMaxPool1D{}(words(ids)))); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
