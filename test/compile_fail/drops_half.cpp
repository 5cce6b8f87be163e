// drops_half.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dropout<50>, nn::Dense<2>> {};
constexpr auto parameters = Net::plan.parameters;
