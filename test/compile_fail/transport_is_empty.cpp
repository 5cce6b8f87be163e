// transport_is_empty.cpp   expect: chorale: the transport argument is not a Transport. It needs reaches(Memory)
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Nothing {};
auto connect() { return Live{MirroredStrategy{}, RingAllReduce{}, Nothing{}}; }
