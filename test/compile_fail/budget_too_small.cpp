// budget_too_small.cpp   expect: chorale: a replica of this network takes more than its memory budget; memory_plan<Net, S, O>(world, rows) says what takes how much. Use ShardedStrategy, nn::Recompute, an optimizer with fewer slots, or fewer rows. See docs/42-strategies.md
// SPDX-License-Identifier: Apache-2.0
#include <chorale/advice.hpp>
#include <chorale/chorale.hpp>

using namespace chorale;

struct Net : nn::Sequential<nn::Input<100>, nn::Dense<1000>> {};  // 101,000 numbers

static_assert(within_memory<1'600'000, 2, 32, Net, MirroredStrategy<>, optim::Adam>());
