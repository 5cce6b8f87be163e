// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

// expect: compiles
auto const reduce = Compressed<fp16>{};

// expect: chorale: Compressed takes bf16 or fp16
auto const reduce = Compressed<double>{};

// expect: compiles
auto const reduce = Bucketed<RingAllReduce, BucketCount<4>>{};

// expect: chorale: Bucketed<R, C> takes a C that says where buckets end
auto const reduce = Bucketed<RingAllReduce, RingAllReduce>{};
