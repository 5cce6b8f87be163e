// pad_below_zero.cpp   expect: chorale: Pad<N> needs at least 0
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = nn::Pad<-1>{};
