// graph_in_bf16.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Numbers : Field<float, 5> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Numbers> {
  nn::Dense<3> kind;
  constexpr auto operator()(auto numbers) const { return nn::outputs<Kind>(kind(numbers)); }
};
auto const model = nn::compile<Net, nn::Precision<bf16>>(loss::SparseCrossEntropy{}, optim::SGD{});
