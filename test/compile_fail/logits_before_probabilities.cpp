// logits_before_probabilities.cpp   expect: chorale: the network ends with logits, and this loss takes probabilities. Put nn::Softmax at its end
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>> {};
auto const model = nn::compile<Net>(loss::CrossEntropyOfProbabilities{}, optim::SGD{});
