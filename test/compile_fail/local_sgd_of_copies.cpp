// local_sgd_of_copies.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto strategy() { return local_sgd<8>(MirroredStrategy{}); }
