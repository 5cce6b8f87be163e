// three_shards.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/placement/partitioned.hpp>

using namespace chorale;

constexpr auto axis = placement::FixedShards<3>::axis;
