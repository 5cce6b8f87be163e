// hybrid_of_state.cpp   expect: chorale: HybridStrategy<zero, within> is for Zero::two and Zero::three, within nodes of 1 rank
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto strategy() { return HybridStrategy<Zero::one, 2>{Cpu::split(4)}; }
