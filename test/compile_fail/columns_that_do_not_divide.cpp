// columns_that_do_not_divide.cpp   expect: chorale: a ShardedEmbedding<A, rows, width, nn::ByColumn> deals out its columns evenly
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Ids : Field<int, 4> {};
struct Net : nn::Graph<Ids> {
  nn::ShardedEmbedding<Axis<"tables", 4>, 100, 18, nn::ByColumn> table;
  constexpr auto operator()(auto ids) const { return nn::outputs<Ids>(table(ids)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
