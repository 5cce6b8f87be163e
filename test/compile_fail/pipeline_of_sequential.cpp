// pipeline_of_sequential.cpp   expect: chorale: a pipeline cuts a network that is derived from nn::Graph
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<4>, nn::Dense<8>, nn::Dense<2>> {};

auto copies() {
  auto live = Live{MeshStrategy{Mesh<Axis<"stage", 2>>{Cpu::logical(2)}, pipelined<OneForwardOneBackward<4>>()},
                   RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}
