// bucket_of_no_bytes.cpp   expect: chorale: gradients are cut into 1 bucket or more, each of 1 byte or more. OneBucket sends all at once, BucketPerLayer each layer by itself
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

void f() { Bucketed<RingAllReduce, BucketBytes<0>>{}; }
