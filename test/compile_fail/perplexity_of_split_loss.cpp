// perplexity_of_split_loss.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Words : Field<int, 8> {};
struct Next : Field<int, 8> {};
using Ranks = Axis<"tensor", 2>;
struct Net : nn::Graph<Words> {
  nn::SplitEmbedding<Ranks, 40, 16> table;
  nn::Dense<16> vectors;
  constexpr auto operator()(auto words) const { return nn::outputs<Next>(table.logits(vectors(table(words)))); }
};
auto const model = nn::compile<Net>(loss::SplitSparseCrossEntropy<Ranks>{}, optim::Adam{});
