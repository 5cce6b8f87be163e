// conv_on_image.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8, 8, 1>, nn::Conv2D<8, 3>, nn::Flatten> {};
constexpr auto parameters = Net::plan.parameters;
