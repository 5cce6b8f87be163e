// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: compiles
#include <chorale/placement/partitioned.hpp>

constexpr auto axis = placement::FixedShards<3>::axis;
