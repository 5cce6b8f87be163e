// strategy_choice_variable.cpp   expect: chorale: a choice of this Strategy is not a static constexpr bool
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Alone : OneDeviceStrategy<Cpu> {
  bool reduces_every_step = true;
};
auto connect(Alone const& alone) { return Live{alone, RingAllReduce{}, LocalTransport{}}; }
