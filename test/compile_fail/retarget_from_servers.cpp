// retarget_from_servers.cpp   expect: chorale: retarget moves the variables of replicas, but under ParameterServerStrategy
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>
#include <chorale/strategy/parameter_server.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}),
                         ParameterServerStrategy{Cluster::local(2, 1)}, RingAllReduce{}, LocalTransport{}};
  auto next    = retarget(std::move(trainer), MirroredStrategy{Cpu::split(2)}, RingAllReduce{}, LocalTransport{});
  next.stop();
}
