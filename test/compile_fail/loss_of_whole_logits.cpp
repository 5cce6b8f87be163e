// loss_of_whole_logits.cpp   expect: chorale: each rank has a part of the logits of this output, and its loss needs all of them. Use loss::SplitSparseCrossEntropy<axis> with the axis over which they are split, or put nn::RowDense last
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
auto const model = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::Adam{});
