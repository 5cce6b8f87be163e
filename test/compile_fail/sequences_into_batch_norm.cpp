// sequences_into_batch_norm.cpp   expect: chorale: batch normalization takes images (B, H, W, C) or rows (B, C)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::BatchNorm<>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
