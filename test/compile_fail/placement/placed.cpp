// SPDX-License-Identifier: Apache-2.0
#include <chorale/chorale.hpp>
#include <chorale/placement/partitioned.hpp>

using namespace chorale;

// expect: compiles
auto const cut = placement::Sharded<1>{};

// expect: chorale: Sharded<axis> is cut along axis 0, 1, ..
auto const cut = placement::Sharded<-1>{};

// expect: compiles
auto const cut = placement::MinSize<1024, 1>{};

// expect: chorale: MinSize<bytes, max_shards, axis> makes 1 to max_shards pieces
auto const cut = placement::MinSize<1024, 0>{};

// expect: compiles
auto const cut = placement::MaxSize<1>{};

// expect: chorale: MaxSize<bytes, axis> makes pieces of at most so many bytes
auto const cut = placement::MaxSize<0>{};

// expect: compiles
auto const cut = placement::Partitioned<placement::MaxSize<1024>, placement::RoundRobin>{};

// expect: chorale: the second argument of Partitioned says which server gets which piece. Write RoundRobin or GreedyByBytes
auto const cut = placement::Partitioned<placement::MaxSize<1024>, placement::MaxSize<1024>>{};

// expect: compiles
auto hash(placement::Placed<placement::Mirrored> gradients) { return hash_of(gradients); }

// expect: chorale: this value is Partial: each replica has a part of it, and their hashes differ
auto hash(placement::Placed<placement::Partial<Op::sum>> gradients) { return hash_of(gradients); }
