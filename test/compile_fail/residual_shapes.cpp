// residual_shapes.cpp   expect: chorale: the branches of a Residual give different shapes; give it an nn::Shortcut<...>
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Residual<nn::Dense<16>, nn::ReLU>, nn::Dense<3>> {};
constexpr auto parameters = Net::plan.parameters;
