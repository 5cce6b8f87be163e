// flatten_present.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<28, 28, 1>, nn::Conv2D<32, 3>, nn::Flatten, nn::Dense<10>> {};
constexpr auto parameters = Net::plan.parameters;
