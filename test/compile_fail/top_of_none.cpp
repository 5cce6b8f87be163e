// top_of_none.cpp   expect: chorale: TopK<PerMille> sends 1 to 1000 of a thousand elements
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = TopK<0>{};
