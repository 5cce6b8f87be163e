// layer_not_in_operations.cpp   expect: chorale: this layer is not written in operations of StableHLO
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/nn/lowering/layers.hpp>
#include <chorale/nn/lowering/network.hpp>

using namespace chorale;

struct Square : nn::Elementwise<Square> {
  static constexpr std::string_view name = "square";
  static float f(float x) { return x * x; }
  static float df(float x, float) { return 2 * x; }
};

struct Pixels : Field<float, 12> {};
struct Area : Field<float, 1> {};

struct Net : nn::Graph<Pixels> {
  nn::Dense<4> wide;
  nn::Dense<1> area;
  constexpr auto operator()(auto x) const { return nn::outputs<Area>(area(Square{}(wide(x)))); }
};
constexpr auto first = nn::graph::Traced<Net, nn::stablehlo::AsText>::calls.calls[0].number;
