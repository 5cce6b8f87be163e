// budget_of_shards.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/advice.hpp>
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<100>, nn::Dense<1000>> {};  // 101,000 numbers

static_assert(within_memory<1'600'000, 2, 32, Net, ShardedStrategy<Zero::one>, optim::Adam, DirectAllReduce>());
