// ids_into_dense.cpp   expect: chorale: this layer takes numbers, but what comes in are ids; put nn::Embedding<rows, width> before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Tags : Field<float, 12> {};
struct Priority : Field<float, 1> {};

struct Net : nn::Graph<Words, Tags> {
  nn::Dense<1> priority;
  nn::Dense<8> words;
  constexpr auto operator()(auto ids, auto tags) const {
    return nn::outputs<Priority>(priority(nn::concatenate(words(ids), tags)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
