// SPDX-License-Identifier: Apache-2.0
//
// A step of a program that uses one strategy, one reduce and one transport: symbols_test.py looks at what is in it.
#include <chorale/chorale.hpp>

using namespace chorale;

namespace {

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::ReLU, nn::Dense<3>> {};

}  // namespace

/// The whole step: gradients, their all-reduce and the update, of a strategy with several replicas.
extern "C" void one_step(Live<MirroredStrategy<Cpu>, RingAllReduce, LocalTransport>& live, Batch const& batch,
                         PerReplica<nn::Compiled<Net, loss::SparseCrossEntropy, optim::SGD>::instance<Cpu>>& copies,
                         PerReplica<Batch>& shares) {
  shares[0] = batch;
  live.run(
      [&](auto& replica, auto& copy, Batch& share) {
        auto [loss, gradients] = replica.value_and_gradient_ahead(copy, share);
        replica.all_reduce(gradients);
        copy.optimizer.apply(copy.net.variables(), gradients);
      },
      copies, shares);
}
