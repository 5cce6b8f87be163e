// loop_on_shards.cpp   expect: chorale: under ShardedStrategy a replica gets the sums of its shard of the gradients only. End the step by live.update(replica, copy, gradients)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{}));
  live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient(copy, batch);
        replica.all_reduce(gradients);
        copy.optimizer.apply(copy.net.variables(), gradients);
      },
      copies);
}
