// halves_not_scaled.cpp   expect: chorale: in fp16 small gradients round to zero, so the loss has to be scaled
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>> {};

auto model() { return nn::compile<Net, nn::Precision<fp16>>(loss::SparseCrossEntropy{}, optim::SGD{}); }
