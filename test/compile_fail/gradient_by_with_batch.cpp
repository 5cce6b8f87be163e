// gradient_by_with_batch.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Point : Field<float, 2> {};
struct IsReal : Field<float, 1> {};
struct Net : nn::Graph<nn::Differentiable<Point, nn::OnRequest>> {
  nn::Dense<1> layer;
  constexpr auto operator()(auto point) const { return nn::outputs<IsReal>(layer(point)); }
};
void use() {
  auto copy = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}).instantiate(Cpu{}, 1);
  copy.gradient_by(Point{}, Rows<Point, IsReal>{{}, {}});
}
