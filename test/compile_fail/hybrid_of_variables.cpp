// hybrid_of_variables.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/parallel.hpp>

using namespace chorale;

auto strategy() { return HybridStrategy<Zero::three, 2>{Cpu::split(4)}; }
