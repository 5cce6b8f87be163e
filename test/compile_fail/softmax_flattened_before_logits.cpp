// softmax_flattened_before_logits.cpp   expect: chorale: the network ends with nn::Softmax, and this loss takes logits
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax, nn::Flatten> {};
auto const model = nn::compile<Net>(loss::CrossEntropy{}, optim::SGD{});
