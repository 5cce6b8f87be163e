// split_with_mesh.cpp   expect: compiles
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
  auto live = Live{MeshStrategy{Mesh<Axis<"tables", 2>>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Bag>(loss::MeanSquaredError{}, optim::SGD{}));
}
