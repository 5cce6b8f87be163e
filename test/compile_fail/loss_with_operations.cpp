// loss_with_operations.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/nn/lowering/losses.hpp>

using namespace chorale;

struct In : Field<float, 4> {};
struct Out : Field<float, 2> {};
struct Net : nn::Graph<In> {
  nn::Dense<2> layer;
  constexpr auto operator()(auto x) const { return nn::outputs<Out>(layer(x)); }
};

auto sum(nn::stablehlo::Value y, nn::stablehlo::Value targets, nn::stablehlo::Value real) {
  return nn::stablehlo::term_sum<Net>(nn::of<Out>(loss::MeanSquaredError{}), y, targets, {}, real);
}
