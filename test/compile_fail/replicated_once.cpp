// replicated_once.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const { return nn::outputs<Score>(nn::replicate<Tensor>(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
