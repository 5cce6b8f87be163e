// ragged_output_of_fixed_targets.cpp   expect: chorale: of an output and the field that it is compared with, one has rows of different lengths and the other has not.
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, ragged> {};
struct Tags : Field<int, 4> {};

struct Net : nn::Graph<Words> {
  nn::Embedding<50, 4> words;
  nn::Dense<3> head;
  constexpr auto operator()(auto ids) const { return nn::outputs<Tags>(head(words(ids))); }
};
auto model                = nn::compile<Net>(loss::SparseCrossEntropy{}, optim::SGD{});
constexpr auto parameters = nn::plan_of<Net>.parameters;
