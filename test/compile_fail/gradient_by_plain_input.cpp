// gradient_by_plain_input.cpp   expect: chorale: gradient_by asks for an input that the network does not take as nn::Differentiable
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};
struct Net : nn::Graph<Point> {
  nn::Dense<1> layer;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layer(point)); }
};
void use() {
  auto copy = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 1);
  copy.gradient_by(Point{});
}
