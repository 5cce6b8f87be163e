// reduce_is_empty.cpp   expect: chorale: the reduce argument is not a ReduceAlgorithm. It needs all_reduce(endpoint, x, op)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Nothing {};
auto connect() { return Live{MirroredStrategy{}, Nothing{}, LocalTransport{}}; }
