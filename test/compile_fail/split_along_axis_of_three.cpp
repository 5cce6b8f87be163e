// split_along_axis_of_three.cpp   expect: chorale: a layer of this network is split along an Axis that the Mesh of this MeshStrategy does not have, or has with another number of ranks. Give both the same Axis
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
struct Bag : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Axis<"tables", 2>, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Axis<"data", 2>, Axis<"tables", 3>>{Cpu::logical(2 * 3)}}, RingAllReduce{},
                   LocalTransport{}};
  return live.create(nn::compile<Bag>(loss::MeanSquaredError{}, optim::SGD{}));
}
