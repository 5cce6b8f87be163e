// tables_for_each_field.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Users : Field<int, 4> {};
struct Items : Field<int, 4> {};
struct Click : Field<float, 1> {};
struct Net : nn::Graph<Users, Items> {
  nn::ShardedTables<Axis<"tables", 2>, 16, nn::TableRows<100, 50>> tables;
  constexpr auto operator()(auto users, auto items) const {
    auto const [user, item] = tables(users, items);
    return nn::outputs<Click>(nn::concatenate(user, item));
  }
};
constexpr auto parameters = nn::plan_of<Net>.parameters;
