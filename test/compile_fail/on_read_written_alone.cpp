// on_read_written_alone.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

void count(SyncedVariable<int, Sync::on_read, Aggregation::sum>& rows) { rows.local().add(7); }
