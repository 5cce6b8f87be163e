// momentum_of_hundred.cpp   expect: chorale: Momentum<Kept> needs a number above 0 and below 1
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = nn::Momentum<100>{};
