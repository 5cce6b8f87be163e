// retarget_from_top_k.cpp   expect: chorale: retarget does not move the parts of gradients that a Reduce such as TopK
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/solver.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};

void learn() {
  auto trainer = Trainer{nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}), MirroredStrategy{Cpu::split(2)},
                         TopK<10>{}, LocalTransport{}};
  auto next    = retarget(std::move(trainer), MirroredStrategy{Cpu::split(3)}, RingAllReduce{}, LocalTransport{});
  next.stop();
}
