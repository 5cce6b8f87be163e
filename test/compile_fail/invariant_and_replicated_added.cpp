// invariant_and_replicated_added.cpp   expect: chorale: a value whose gradient is complete on each rank of an axis (I) meets one whose gradient is not (R, V, P or S), so that it would get a part: put nn::replicate<Axis>(x) around the first
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(x + other);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
