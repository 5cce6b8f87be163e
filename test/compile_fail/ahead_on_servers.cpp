// ahead_on_servers.cpp   expect: chorale: under ParameterServerStrategy no gradients leave ahead of the others
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/parameter_server.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn(Batch const& batch) {
  auto live   = Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto copies = live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}));
  PerReplica<Sum<float>> losses = live.run(
      [&](auto& replica, auto& copy) {
        auto [loss, gradients] = replica.value_and_gradient_ahead(copy, batch);
        live.update(replica, copy, gradients);
        return loss;
      },
      copies);
  live.reduce(losses);
}
