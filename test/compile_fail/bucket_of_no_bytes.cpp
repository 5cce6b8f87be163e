// SPDX-License-Identifier: Apache-2.0
// bucket_of_no_bytes.cpp          expect: chorale: a bucket has 1 byte or more. BucketPerLayer makes one for each layer
#include <chorale/chorale.hpp>

using namespace chorale;

void f() { Bucketed<RingAllReduce, BucketBytes<0>>{}; }
