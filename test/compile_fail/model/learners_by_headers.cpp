// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: chorale: FixedShards<n, axis> cuts a variable in n pieces
#include <chorale/placement/partitioned.hpp>

constexpr auto axis = placement::FixedShards<0>::axis;
