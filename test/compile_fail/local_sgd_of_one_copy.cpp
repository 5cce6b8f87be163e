// local_sgd_of_one_copy.cpp   expect: chorale: LocalSgd needs a strategy with a copy of the variables on every replica
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto strategy() { return local_sgd<8>(CentralStorageStrategy{}); }
