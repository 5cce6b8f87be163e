// bucketed_twice.cpp   expect: chorale: this Reduce is Bucketed twice, and only one cut can hold. Remove one
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

void f() { Bucketed<Bucketed<RingAllReduce, OneBucket>, BucketPerLayer>{}; }
