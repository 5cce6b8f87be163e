// tables_for_more_fields.cpp   expect: chorale: ShardedTables takes a field of ids for each table
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Users : Field<int, 4> {};
struct Items : Field<int, 4> {};
struct Click : Field<float, 1> {};
struct Net : nn::Graph<Users, Items> {
  nn::ShardedTables<Axis<"tables", 2>, 16, nn::TableRows<100, 50, 20>> tables;
  constexpr auto operator()(auto users, auto items) const { return nn::outputs<Click>(tables(users, items)); }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
