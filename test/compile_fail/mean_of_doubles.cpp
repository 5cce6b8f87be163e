// mean_of_doubles.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

SyncedVariable<double, Sync::on_read, Aggregation::mean> rows{0};
