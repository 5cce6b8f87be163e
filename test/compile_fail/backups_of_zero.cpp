// backups_of_zero.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/strategy/consistency.hpp>

using namespace chorale;

auto const made = BackupWorkers<0>{};
