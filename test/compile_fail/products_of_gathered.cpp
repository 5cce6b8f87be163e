// products_of_gathered.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a = nn::scatter<Tensor, 0>(x), all = a;
    auto const y = nn::all_gather<Tensor>(nn::dot(a, nn::all_gather<Tensor, nn::replicated>(all)));
    return nn::outputs<Score>(nn::concatenate(y, nn::slice<0, 2>(y)));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
