// ids_into_rms_norm.cpp   expect: chorale: RMSNorm takes vectors of numbers (B, .., C); put nn::Embedding<rows, width> after ids
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<int, 6> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::RMSNorm<>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
