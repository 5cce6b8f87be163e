// zero_shards.cpp   expect: chorale: FixedShards<n, axis> cuts a variable in n pieces
// SPDX-License-Identifier: Apache-2.0
#include <chorale/placement/partitioned.hpp>

using namespace chorale;

constexpr auto axis = placement::FixedShards<0>::axis;
