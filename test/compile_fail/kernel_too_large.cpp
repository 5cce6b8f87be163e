// kernel_too_large.cpp   expect: chorale: the kernel of this Conv2D is larger than the image
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<4, 4, 1>, nn::Conv2D<8, 5>, nn::Flatten, nn::Dense<10>> {};
constexpr auto parameters = Net::plan.parameters;
