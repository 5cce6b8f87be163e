// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: chorale: a LocalBatch is the rows of one replica
#include <chorale/core/types.hpp>

auto rows(GlobalBatch batch) { return batch.rows; }
auto const n = rows(LocalBatch{64});

// expect: compiles
#include <chorale/core/types.hpp>

auto rows(GlobalBatch batch) { return batch.rows; }
auto const n = rows(LocalBatch{64} * 4);

// expect: compiles
#include <chorale/tensor/synced_variable.hpp>

SyncedVariable<float, Sync::on_read, Aggregation::mean> loss{0};

// expect: chorale: an on_read variable has another value on each replica
#include <chorale/tensor/synced_variable.hpp>

SyncedVariable<float, Sync::on_read, Aggregation::none> loss{0};

// expect: compiles
#include <chorale/tensor/synced_variable.hpp>

void count(SyncedVariable<int, Sync::on_read, Aggregation::sum>& rows) { rows.local().add(7); }

// expect: chorale: an on_read variable is written by each replica alone
#include <chorale/tensor/synced_variable.hpp>

void count(SyncedVariable<int, Sync::on_read, Aggregation::sum>& rows) {
  rows.write(7, [](Span<int>) {});
}

// expect: compiles
#include <chorale/tensor/synced_variable.hpp>

float get(SyncedVariable<float, Sync::on_write, Aggregation::sum> const& scale) { return scale.local().read(); }

// expect: chorale: an on_write variable is the same on all replicas. Write local().read()
#include <chorale/tensor/synced_variable.hpp>

float get(SyncedVariable<float, Sync::on_write, Aggregation::sum> const& scale) {
  return scale.read([](Span<float>) {});
}
