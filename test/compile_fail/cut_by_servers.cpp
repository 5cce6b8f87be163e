// cut_by_servers.cpp   expect: chorale: the first argument of Partitioned says how a variable is cut
// SPDX-License-Identifier: Apache-2.0
#include <chorale/placement/partitioned.hpp>

using namespace chorale;

placement::Partitioned<placement::GreedyByBytes> sharding;
