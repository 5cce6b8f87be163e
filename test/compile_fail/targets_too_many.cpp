// targets_too_many.cpp   expect: chorale: this loss takes another number of targets for its output than the field has
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Wide : Field<float, 5> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Wide>(words(ids)); }
};
auto const model = nn::compile<Net>(loss::MeanSquaredError{}, optim::SGD{});
