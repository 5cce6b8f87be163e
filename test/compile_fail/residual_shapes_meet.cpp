// residual_shapes_meet.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net
    : nn::Sequential<nn::Input<8>, nn::Residual<nn::Dense<16>, nn::ReLU, nn::Shortcut<nn::Dense<16>>>, nn::Dense<3>> {};
constexpr auto parameters = Net::plan.parameters;
