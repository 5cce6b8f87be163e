// classes_none.cpp   expect: chorale: metric::ConfusionMatrix<Classes> needs at least 1 class
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = metric::ConfusionMatrix<0>{};
