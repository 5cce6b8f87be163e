// option_of_batch_norm.cpp   expect: chorale: batch normalization takes the options Momentum<percent> and Epsilon<millionths>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::BatchNorm<nn::Same>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
