// SPDX-License-Identifier: Apache-2.0

using namespace chorale;

// expect: chorale: a PerReplica is one value for each replica, not one number
#include <chorale/tensor/per_replica.hpp>

float mean(PerReplica<float> const& losses) { return losses; }

// expect: compiles
#include <chorale/tensor/per_replica.hpp>

float first(PerReplica<float> const& losses) { return losses[0]; }
