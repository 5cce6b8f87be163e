// sharded_over_ring.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto connect() { return Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }
