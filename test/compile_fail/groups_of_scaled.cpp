// groups_of_scaled.cpp   expect: chorale: put optim::LossScaled around optim::Grouped, not into it: optim::LossScaled{optim::Grouped{optimizer, groups}}
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const rule = optim::Grouped{optim::LossScaled{optim::Adam{}}, {optim::frozen("dense/*")}};
