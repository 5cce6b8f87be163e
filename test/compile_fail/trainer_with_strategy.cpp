// trainer_with_strategy.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
auto train() { return Trainer{model, MirroredStrategy{}, RingAllReduce{}, LocalTransport{}}; }
