// halves_scaled.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto model() {
  return nn::compile<Net, nn::Precision<fp16>>(loss::SparseCrossEntropy{}, optim::LossScaled{optim::SGD{}});
}
