// bag_of_bags.cpp   expect: chorale: EmbeddingBag takes (B, n) ids; put nn::reshape<n>(...) before it
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Ids : Field<int, 3, 5> {};
struct Mean : Field<float, 4> {};
struct Net : nn::Graph<Ids> {
  nn::EmbeddingBag<50, 4> words;
  constexpr auto operator()(auto ids) const { return nn::outputs<Mean>(words(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
