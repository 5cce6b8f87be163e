// two_optimizers.cpp   expect: chorale: nn::compile has two optimizers, and a network has one
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(optim::Adam{}, loss::SparseCrossEntropy{}, optim::SGD{});
