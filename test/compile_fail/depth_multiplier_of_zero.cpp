// depth_multiplier_of_zero.cpp   expect: chorale: DepthMultiplier<N> needs at least 1
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = nn::DepthMultiplier<0>{};
