// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: compiles
#include <chorale/tensor/synced_variable.hpp>

void set(SyncedVariable<float, Sync::on_write, Aggregation::none>& scale) { scale.write_same(0.5F); }

// expect: chorale: a ReadHandle only reads
#include <chorale/tensor/synced_variable.hpp>

void set(ReadHandle<float> rate) { rate.assign(0.1F); }

// expect: compiles
#include <chorale/tensor/synced_variable.hpp>

void set(WriteHandle<float> rate) { rate.assign(0.1F); }

// expect: chorale: replicas write values to a variable without aggregation
#include <chorale/tensor/synced_variable.hpp>

void set(SyncedVariable<float, Sync::on_write, Aggregation::none>& scale) {
  scale.write(0.5F, [](Span<float>) {});
}
