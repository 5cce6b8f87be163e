// local_batch_as_global.cpp   expect: chorale: a LocalBatch is the rows of one replica
// SPDX-License-Identifier: Apache-2.0
#include <chorale/core/types.hpp>

using namespace chorale;

auto rows(GlobalBatch batch) { return batch.rows; }
auto const n = rows(LocalBatch{64});
