// pipeline_of_graph.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct X : Field<float, 4> {};
struct Y : Field<float, 2> {};
struct Net : nn::Graph<X> {
  nn::Block<nn::Dense<8>, nn::Dense<2>> layers;
  constexpr auto operator()(auto x) const { return nn::outputs<Y>(layers(x)); }
};

auto copies() {
  auto live = Live{MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()},
                   RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}
