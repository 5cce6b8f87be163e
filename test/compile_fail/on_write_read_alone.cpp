// on_write_read_alone.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/synced_variable.hpp>

using namespace chorale;

float get(SyncedVariable<float, Sync::on_write, Aggregation::sum> const& scale) { return scale.local().read(); }
