// cut_then_servers.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/placement/partitioned.hpp>

using namespace chorale;

placement::Partitioned<placement::MaxSize<1024>, placement::GreedyByBytes> sharding;
