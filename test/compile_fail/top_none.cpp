// top_none.cpp   expect: chorale: metric::TopKAccuracy<K> needs at least 1
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = metric::TopKAccuracy<0>{};
