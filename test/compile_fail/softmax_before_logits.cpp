// softmax_before_logits.cpp   expect: chorale: the network ends with nn::Softmax, and this loss takes logits, to which it applies softmax itself. Remove nn::Softmax
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
