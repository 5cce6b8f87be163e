// kernel_fits.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<4, 4, 1>, nn::Conv2D<8, 5, nn::Same>, nn::Flatten, nn::Dense<10>> {};
constexpr auto parameters = Net::plan.parameters;
