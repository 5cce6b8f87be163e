// momentum_of_hundred.cpp   expect: chorale: Momentum<Kept> needs 1 to 99 percent
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = nn::Momentum<100>{};
