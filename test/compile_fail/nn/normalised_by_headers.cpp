// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: compiles
#include <chorale/tensor/synced_variable.hpp>

SyncedVariable<double, Sync::on_read, Aggregation::mean> rows{0};

// expect: compiles
#include <chorale/reduce/collectives/mean.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/local.hpp>

void mean(LocalEndpoint& at, Span<float> x) { all_reduce_mean(RingAllReduce{}, at, x); }

// expect: chorale: the mean of integers is no integer without a rule: all_reduce_mean<IntegerMean::floor>, or <IntegerMean::nearest>; or all_reduce, and a division of one's own
#include <chorale/reduce/collectives/mean.hpp>
#include <chorale/reduce/ring.hpp>
#include <chorale/transport/local.hpp>

void mean(LocalEndpoint& at, Span<int> x) { all_reduce_mean(RingAllReduce{}, at, x); }
