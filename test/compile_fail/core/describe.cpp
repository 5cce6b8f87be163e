// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

#include <vector>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<2>> {};
struct Plain : optim::SGD {
  std::vector<float> rates{};
  float first = 0;
};

// expect: compiles
struct Stepped : Plain {
  void options(auto&& visit) const { visit("first", first); }
};
auto lines() { return nn::compile<Net>(loss::SparseCrossEntropy{}, Stepped{}).lines(); }

// expect: chorale: options(visit) may give numbers, enumerations, texts, and objects with a text()
struct Stepped : Plain {
  void options(auto&& visit) const { visit("rates", rates); }
};
auto lines() { return nn::compile<Net>(loss::SparseCrossEntropy{}, Stepped{}).lines(); }
