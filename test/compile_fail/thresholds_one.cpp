// thresholds_one.cpp   expect: chorale: metric::AUC<Thresholds> needs at least 2 thresholds
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const made = metric::AUC<1>{};
