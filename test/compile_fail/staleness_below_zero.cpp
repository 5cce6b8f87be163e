// staleness_below_zero.cpp   expect: chorale: BoundedStaleness<k> needs k of at least 0
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/consistency.hpp>

using namespace chorale;

auto const made = BoundedStaleness<-1>{};
