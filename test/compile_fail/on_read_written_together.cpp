// on_read_written_together.cpp   expect: chorale: an on_read variable is written by each replica alone
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

void count(SyncedVariable<int, Sync::on_read, Aggregation::sum>& rows) {
  rows.write(7, [](Span<int>) {});
}
