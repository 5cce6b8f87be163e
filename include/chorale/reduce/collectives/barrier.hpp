// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/types.hpp>
#include <chorale/reduce/recursive_doubling.hpp>
#include <chorale/reduce/schedule_engine.hpp>
#include <chorale/transport/transport.hpp>

#include <cstdint>

namespace chorale {

/// Returns when every rank has called it.
///
/// cost    the messages of an all-reduce by recursive doubling, without content
template <Endpoint E> void barrier(E& at, Tag tag = {}, CallSite where = CallSite::here()) {
  auto operation = ScheduleExecution<RecursiveDoublingAllReduce, E, std::uint32_t>{};
  operation.restart(at, {.collective = Collective::barrier, .tag = tag, .where = where});
  operation.finish();
}

}  // namespace chorale
