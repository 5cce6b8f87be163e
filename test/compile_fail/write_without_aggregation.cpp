// write_without_aggregation.cpp   expect: chorale: replicas write values to a variable without aggregation
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

void set(SyncedVariable<float, Sync::on_write, Aggregation::none>& scale) {
  scale.write(0.5F, [](Span<float>) {});
}
