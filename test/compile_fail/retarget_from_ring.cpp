// retarget_from_ring.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), MirroredStrategy{Cpu::split(2)},
                         RingAllReduce{}, LocalTransport{}};
  auto next    = retarget(std::move(trainer), MirroredStrategy{Cpu::split(3)}, RingAllReduce{}, LocalTransport{});
  next.stop();
}
