// normed_in_units.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::BatchNorm<>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ShardedStrategy<Zero::two>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}));
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        live.update(replica, copy, gradients);
      },
      copies);
}
