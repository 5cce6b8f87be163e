// metric_is_empty.cpp   expect: chorale: a metric argument is not a metric
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Nothing {};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{}, Nothing{});
