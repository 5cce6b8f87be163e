// axis_of_two_sizes.cpp   expect: chorale: two axes of one name have different numbers of ranks. Give the axis a name in C++, by using, and write that name everywhere
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

using Tensor = Axis<"tensor", 2>;

struct Image : Field<float, 4, 6> {};
struct Score : Field<float, 4, 6> {};

struct Net : nn::Graph<Image> {
  constexpr auto operator()(auto x) const {
    auto const a     = nn::replicate<Axis<"tensor", 3>>(x);
    auto const other = nn::replicate<Tensor>(x);
    return nn::outputs<Score>(a + other);
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
