// bucket_of_bytes.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

void f() { Bucketed<RingAllReduce, BucketBytes<1>>{}; }
