// units_by_ring.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

auto connect() { return Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, RingAllReduce{}, LocalTransport{}}; }
