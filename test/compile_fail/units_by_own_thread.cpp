// units_by_own_thread.cpp   expect: chorale: under ShardedStrategy<Zero::two> and <Zero::three> the thread that computes also sends, as its buffers are used again in the same step. Use the Reduce without OwnThread
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<8>, nn::Dense<4>, nn::Dense<2>> {};

auto connect() {
  return Live{ShardedStrategy<Zero::three>{Cpu::logical(2)}, OwnThread<RingAllReduce>{}, LocalTransport{}};
}
