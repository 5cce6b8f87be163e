// sequential_of_lstm.cpp   expect: chorale: a layer of this nn::Sequential computes in networks derived from nn::Graph alone
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8, 16>, nn::LSTM<4>, nn::Dense<3>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
