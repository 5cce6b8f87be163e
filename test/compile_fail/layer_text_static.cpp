// layer_text_static.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Clipped : nn::ReLU {
  static std::string text() { return "Clipped"; }
};
struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>, Clipped> {};
auto const parameters = Net::plan.parameters;
