// SPDX-License-Identifier: Apache-2.0
// bucketed_once.cpp          expect: compiles
#include <chorale/chorale.hpp>

using namespace chorale;

void f() { Bucketed<RingAllReduce, BucketPerLayer>{}; }
