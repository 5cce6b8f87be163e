// rate_of_step.cpp   expect: chorale: a learning rate is a number, a schedule of chorale::optim, or a function of an optim::Moment that returns a float
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const rule = optim::SGD{.learning_rate = [](long step) { return 0.1F / static_cast<float>(1 + step); }};
