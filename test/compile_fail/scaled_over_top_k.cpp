// scaled_over_top_k.cpp   expect: chorale: optim::LossScaled does not fit a Reduce that leaves a part of the gradients
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto copies() {
  auto live = Live{MirroredStrategy{}, TopK<10>{}, LocalTransport{}};
  return live.create(nn::compile<Net>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}}));
}
