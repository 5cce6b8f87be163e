// rate_of_moment.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto const rule = optim::SGD{.learning_rate = [](optim::Moment t) { return 0.1F / static_cast<float>(1 + t.step); }};
