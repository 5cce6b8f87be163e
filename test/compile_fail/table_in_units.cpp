// table_in_units.cpp   expect: chorale: under ShardedStrategy a replica has a shard of all variables, and the gradients of a table of this network are rows. Write nn::Embedding<rows, width, nn::DenseGradient>, or use MultiWorkerMirroredStrategy
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<int, 4> {};
struct Mean : Field<float, 12> {};
struct Net : nn::Graph<Words> {
  nn::Embedding<20, 3> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(nn::reshape<12>(words(ids))); }
};

auto create() {
  auto live = Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::MeanSquaredError{}, optim::Adam{}));
}
