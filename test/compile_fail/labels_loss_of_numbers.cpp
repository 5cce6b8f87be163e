// labels_loss_of_numbers.cpp   expect: chorale: this loss and the field of its output have different element types
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Words : Field<int, 5> {};
struct Score : Field<float, 1> {};
struct Kind : Field<int, 1> {};

struct Net : nn::Graph<Words> {
  nn::EmbeddingBag<50, 4> words;
  nn::Dense<1> score{"score"};
  nn::Dense<3> kind{"kind"};
  constexpr auto operator()(auto ids) const {
    auto const x = words(ids);
    return nn::outputs<Score, Kind>(score(x), kind(x));
  }
};
auto const model = nn::compile<Net>(nn::of<Score>(loss::SparseCrossEntropy{}), optim::SGD{});
