// groups_of_zero.cpp   expect: chorale: Groups<N> needs at least 1
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = nn::Groups<0>{};
