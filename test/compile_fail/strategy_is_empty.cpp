// strategy_is_empty.cpp   expect: chorale: the strategy argument is not a Strategy
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Nothing {};
auto connect() { return Live{Nothing{}, RingAllReduce{}, LocalTransport{}}; }
