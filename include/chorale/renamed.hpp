// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/compressed.hpp>
#include <chorale/reduce/schedule_proof.hpp>
#include <chorale/reduce/topology.hpp>
#include <chorale/strategy/runtime/distributed_batches.hpp>
#include <chorale/trainer/evaluator.hpp>
#include <chorale/transport/network_model.hpp>
#include <chorale/transport/timeouts.hpp>
#include <chorale/transport/topology.hpp>

#include <utility>

/// Names of the release before this one, for programs that still have them: each gives a warning that says the new name.
/// They go with the next release. docs/80-decisions.md lists all that were renamed, also those that can have no alias.
namespace chorale {

using Limits [[deprecated("chorale: Limits is now Timeouts, and the member limits is timeouts")]] = Timeouts;
using Failures [[deprecated("chorale: Failures is now FailureScope: together is group, apart is peer")]] = FailureScope;
using Links [[deprecated("chorale: Links is now Topology, and the member links is topology")]] = Topology;
using CostModel [[deprecated("chorale: CostModel is now NetworkModel")]] = NetworkModel;
using Shares [[deprecated("chorale: Shares is now BatchShares")]] = BatchShares;
using Verdict [[deprecated("chorale: Verdict is now FirstFlaw")]] = FirstFlaw;
using Followed [[deprecated("chorale: Followed is now CheckpointScores")]] = CheckpointScores;

template <class... T>
using Wire [[deprecated("chorale: Wire is now Compressed")]] = Compressed<T...>;

/// The old name of topology_of().
template <class... R>
[[deprecated("chorale: links_of is now topology_of")]] constexpr Topology links_of() {
  return topology_of<R...>();
}

/// The old name of topology_for_training().
template <class... R>
[[deprecated("chorale: links_for_training is now topology_for_training")]] constexpr Topology links_for_training() {
  return topology_for_training<R...>();
}

/// The old name of evaluate_checkpoints().
template <class... Arguments>
[[deprecated("chorale: follow is now evaluate_checkpoints")]] auto follow(Arguments&&... arguments) {
  return evaluate_checkpoints(std::forward<Arguments>(arguments)...);
}

}  // namespace chorale
