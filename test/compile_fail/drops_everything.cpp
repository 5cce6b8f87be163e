// drops_everything.cpp   expect: chorale: Dropout<Rate> needs at least 0 and less than 1
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dropout<100>, nn::Dense<2>> {};
constexpr auto parameters = Net::plan.parameters;
