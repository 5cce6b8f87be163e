// metric_of_split_logits.cpp   expect: chorale: each rank has a part of this output, and a metric needs all of it. Leave the metric out: the exp of the loss is the perplexity
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
auto const model = nn::compile<Net>(loss::SplitSparseCrossEntropy<Ranks>{}, optim::Adam{}, metric::Accuracy{});
