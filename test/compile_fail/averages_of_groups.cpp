// averages_of_groups.cpp   expect: chorale: put optim::Averaged next to the optimizer, and others around it: optim::Grouped{optim::Averaged{optim::Adam{}}, groups}
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const rule = optim::Averaged{optim::Grouped{optim::Adam{}, {optim::frozen("dense/*")}}};
