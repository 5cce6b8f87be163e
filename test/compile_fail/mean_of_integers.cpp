// mean_of_integers.cpp   expect: chorale: the mean of integers is not an integer
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

SyncedVariable<int, Sync::on_read, Aggregation::mean> rows{0};
