// direct_over_shared_memory.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto connect() { return Live{MirroredStrategy{}, DirectAllReduce{}, LocalTransport{}}; }
