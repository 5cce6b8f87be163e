// per_replica_as_scalar.cpp   expect: chorale: a PerReplica is one value for each replica, not one number
// SPDX-License-Identifier: Apache-2.0
#include <chorale/tensor/per_replica.hpp>

using namespace chorale;

float mean(PerReplica<float> const& losses) { return losses; }
