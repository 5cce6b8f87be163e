// bag_of_ids.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Ids : Field<int, 15> {};
struct Mean : Field<float, 4> {};
struct Net : nn::Graph<Ids> {
  nn::EmbeddingBag<50, 4> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
