// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

// expect: compiles
using Ranks     = Axis<"tensor", 1>;
auto const size = Ranks::size;

// expect: chorale: Axis<name, ranks> needs at least 1 rank
using Ranks     = Axis<"tensor", 0>;
auto const size = Ranks::size;

// expect: chorale: the name of an axis has 1 to 23 characters
using Ranks     = Axis<"", 2>;
auto const size = Ranks::size;

// expect: compiles
auto const rank = Shape<28, 28, 1>::rank;

// expect: chorale: every dimension of a Shape must be at least 1
auto const rank = Shape<28, 0, 1>::rank;

// expect: compiles
SyncedVariable<float, Sync::on_read, Aggregation::sum>* variable = nullptr;
void restore() { variable->restore(1.0F); }

// expect: chorale: a SyncedVariable is a number
SyncedVariable<bool, Sync::on_read, Aggregation::sum>* variable = nullptr;
void restore() { variable->restore(true); }

// expect: chorale: an on_write variable is the same on all replicas. Call write_same(value)
SyncedVariable<float, Sync::on_write, Aggregation::mean>* variable = nullptr;
void restore() { variable->restore({}); }

// expect: compiles
SyncedVariable<double, Sync::on_write, Aggregation::mean> variable{0};

// expect: chorale: the mean of integers is not an integer. Use Aggregation::sum, or a variable of double
SyncedVariable<int, Sync::on_write, Aggregation::mean> variable{0};
