// softmax_before_probabilities.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<3>, nn::Softmax> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{});
