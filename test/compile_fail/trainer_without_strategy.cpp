// trainer_without_strategy.cpp   expect: chorale: the strategy argument is not a Strategy
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
struct Nothing {};
auto train() { return Trainer{model, Nothing{}, RingAllReduce{}, LocalTransport{}}; }
