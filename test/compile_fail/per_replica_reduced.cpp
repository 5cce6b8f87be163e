// per_replica_reduced.cpp   expect: compiles
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/per_replica.hpp>

using namespace chorale;

float first(PerReplica<float> const& losses) { return losses[0]; }
