// network_is_empty.cpp   expect: chorale: the network argument is not a network
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Nothing {};
auto const model = nn::compile<Nothing>(loss::SparseCrossEntropy{}, optim::SGD{});
