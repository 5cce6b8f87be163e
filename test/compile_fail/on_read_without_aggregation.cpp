// on_read_without_aggregation.cpp   expect: chorale: an on_read variable has another value on each replica
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

SyncedVariable<float, Sync::on_read, Aggregation::none> loss{0};
