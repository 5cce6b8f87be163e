// on_read_with_aggregation.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

SyncedVariable<float, Sync::on_read, Aggregation::mean> loss{0};
