// reproducible_by_three.cpp   expect: chorale: Reproducible<L> needs a power of two up to 64
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = Reproducible<3>{};
