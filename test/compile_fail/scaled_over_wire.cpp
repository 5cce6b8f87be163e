// scaled_over_wire.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto copies() {
  auto live = Live{MirroredStrategy{}, Compressed<bf16>{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}}));
}
