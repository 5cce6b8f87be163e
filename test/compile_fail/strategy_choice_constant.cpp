// strategy_choice_constant.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

struct Alone : OneDeviceStrategy<Cpu> {
  static constexpr bool reduces_every_step = true;
};
auto connect(Alone const& alone) { return Live{alone, RingAllReduce{}, LocalTransport{}}; }
