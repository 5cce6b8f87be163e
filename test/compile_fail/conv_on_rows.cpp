// conv_on_rows.cpp   expect: chorale: Conv2D takes images (B, H, W, C) but the layer before gives rows of numbers
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8, 8, 1>, nn::Flatten, nn::Conv2D<8, 3>> {};
constexpr auto parameters = Net::plan.parameters;
