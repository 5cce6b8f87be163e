// columns_that_divide.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Ids : Field<int, 4> {};
struct Net : nn::Graph<Ids> {
  nn::ShardedEmbedding<Axis<"tables", 4>, 100, 16, nn::ByColumn> table;
  constexpr auto operator()(auto ids) const { return nn::outputs<Ids>(table(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
