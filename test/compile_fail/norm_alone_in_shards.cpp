// norm_alone_in_shards.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/nn/layers/batch_norm.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::BatchNorm<>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});

auto connect() { return Live{MirroredStrategy{}, Reproducible<>{}, LocalTransport{}}; }

void learn(Batch const& batch) {
  auto live   = connect();
  auto copies = live.create(model);
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.strategy().update(replica, copy, gradients);
      },
      copies);
}
