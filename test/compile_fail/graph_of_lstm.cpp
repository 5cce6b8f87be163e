// graph_of_lstm.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Numbers : Field<float, 8, 16> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Numbers> {
  nn::LSTM<4> reader;
  nn::Dense<3> kind;
  constexpr auto operator()(auto numbers) const { return nn::outputs<Kind>(kind(reader(numbers))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
