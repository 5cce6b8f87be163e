// data_axis_of_tables.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<int, 4> {};
struct Mean : Field<float, 3> {};
using Ranks = Axis<"data", 2>;
struct Net : nn::Graph<Words> {
  nn::ShardedEmbeddingBag<Ranks, 20, 3, nn::Bag::mean> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};

auto create() {
  auto live = Live{MeshStrategy{Mesh<Ranks>{Cpu::logical(2)}}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{}));
}
