// up_sampling_of_rows.cpp   expect: chorale: UpSampling2D<rows, columns> takes images (B, H, W, C), and factors of at least 1
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct In : Field<float, 6, 4> {};
struct Out : Field<float, 1> {};

struct Net : nn::Graph<In> {
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(nn::UpSampling2D<2, 2>{}(x)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
