// scaled_of_groups.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const rule = optim::LossScaled{optim::Grouped{optim::Averaged{optim::Adam{}}, {optim::frozen("dense/*")}}};
