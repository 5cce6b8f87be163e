// graph_in_fp16.cpp   expect: chorale: in fp16 small gradients round to zero, and a network derived from nn::Graph does not scale its loss
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Numbers : Field<float, 5> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Numbers> {
  nn::Dense<3> kind;
  constexpr auto operator()(auto numbers) const { return nn::outputs<Kind>(kind(numbers)); }
};
auto const model = nn::compile<Net, nn::Precision<fp16>>(loss::SparseCrossEntropy{}, optim::SGD{});
