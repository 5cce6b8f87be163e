// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

#include "test/compile_fail/gpu.hpp"

using namespace chorale;

// expect: compiles
auto const strategy = ShardedStrategy<Zero::one>{Cpu::logical(2)};

// expect: chorale: ShardedStrategy computes on host memory. Use it over Cpu
auto const strategy = ShardedStrategy<Zero::one, Gpu>{};
