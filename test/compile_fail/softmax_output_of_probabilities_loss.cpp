// softmax_output_of_probabilities_loss.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<3> kind;
  constexpr auto operator()(auto ids) const { return nn::outputs<Kind>(nn::Softmax{}(kind(words(ids)))); }
};
auto const model = nn::compile<Net>(loss::SparseCrossEntropyOfProbabilities{}, optim::SGD{});
