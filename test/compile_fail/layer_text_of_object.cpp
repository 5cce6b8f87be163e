// layer_text_of_object.cpp   expect: chorale: an optional member of a layer is not static, or no constant
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Clipped : nn::ReLU {
  std::string text() const { return "Clipped"; }
};
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>, Clipped> {};
auto const parameters = Net::plan.parameters;
