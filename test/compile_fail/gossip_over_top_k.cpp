// gossip_over_top_k.cpp   expect: chorale: this Strategy cannot use this Reduce
// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>

using namespace chorale;

auto connect() { return Live{Gossip{MirroredStrategy{}}, TopK<10>{}, LocalTransport{}}; }
