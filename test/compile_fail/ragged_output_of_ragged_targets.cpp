// ragged_output_of_ragged_targets.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, ragged> {};
struct Tags : Field<int, ragged> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<3> head;
  constexpr auto operator()(auto ids) const { return nn::outputs<Tags>(head(words(ids))); }
};
auto model                = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
constexpr auto parameters = nn::plan_of<Net>.parameters;
