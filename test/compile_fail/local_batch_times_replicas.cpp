// local_batch_times_replicas.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/types.hpp>

using namespace chorale;

auto rows(GlobalBatch batch) { return batch.rows; }
auto const n = rows(LocalBatch{64} * 4);
