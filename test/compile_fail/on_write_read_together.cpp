// on_write_read_together.cpp   expect: chorale: an on_write variable is the same on all replicas. Write local().read()
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

float get(SyncedVariable<float, Sync::on_write, Aggregation::sum> const& scale) {
  return scale.read([](Span<float>) {});
}
