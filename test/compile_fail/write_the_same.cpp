// write_the_same.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

void set(SyncedVariable<float, Sync::on_write, Aggregation::none>& scale) { scale.write_same(0.5F); }
