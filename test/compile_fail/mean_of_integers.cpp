// mean_of_integers.cpp   expect: chorale: the mean of integers is no integer without a rule: all_reduce_mean<IntegerMean::floor>, or <IntegerMean::nearest>; or all_reduce, and a division of one's own
// SPDX-License-Identifier: Apache-2.0
#include <chorale/reduce/collectives/mean.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/local.hpp>

using namespace chorale;

void mean(LocalEndpoint& at, Span<int> x) { all_reduce_mean(RingAllReduce{}, at, x); }
