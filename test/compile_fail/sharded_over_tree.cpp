// sharded_over_tree.cpp   expect: chorale: this Strategy cannot use this Reduce, which rounds, leaves out or orders what it adds up: LocalSgd and Gossip average variables by it, and under ParameterServerStrategy no gradient passes through it; or which has no halves, of which ShardedStrategy uses one before the update and one after it. RingAllReduce goes with all. See docs/30-compose.md
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto connect() { return Live{ShardedStrategy<Zero::one>{Cpu::logical(2)}, TreeAllReduce{}, LocalTransport{}}; }
