// two_losses.cpp   expect: chorale: nn::compile has two losses, and a network has one
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, loss::CrossEntropy{}, optim::SGD{});
