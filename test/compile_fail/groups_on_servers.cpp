// groups_on_servers.cpp   expect: chorale: optim::Grouped does not run under ParameterServerStrategy, whose servers do not know the names of variables. Use MultiWorkerMirroredStrategy
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/parameter_server.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};
auto const model =
    nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Grouped{optim::SGD{}, {optim::frozen("dense/*")}});

auto connect() { return Live{ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}}; }

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
