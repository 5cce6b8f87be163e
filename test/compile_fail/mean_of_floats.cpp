// mean_of_floats.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/reduce/collectives/mean.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/local.hpp>

using namespace chorale;

void mean(LocalEndpoint& at, Span<float> x) { all_reduce_mean(RingAllReduce{}, at, x); }
