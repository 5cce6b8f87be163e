// loss_is_empty.cpp   expect: chorale: the loss argument is not a loss. It needs `using target`
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Nothing {};
auto const model = nn::compile<Net>(Nothing{}, optim::SGD{});
