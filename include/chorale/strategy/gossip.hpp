// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/strategy.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace chorale {

/// The replicas of another strategy, which train independently, and average their variables in pairs after each step.
///
///   Gossip{MirroredStrategy{Cpu::split(4)}}
///
///   P = 4, pairs of replicas  step 0   0-3 1-2      every pair occurs once in P-1 steps (in P steps when P is odd, and
///                             step 1   1-3 2-0      then one replica has no peer in each)
///                             step 2   2-3 0-1
///
/// keeps   within an epoch, copies only stay close; after each epoch all are bit-equal: their mean
/// cost    one message of all variables each way per step, whatever the number of replicas; a replica waits for at most
///         one other. For a table whose gradient is rows, it sends the rows that it knows to be changed in the epoch,
///         by any replica: 4 bytes and a vector each; at the end of an epoch also the table once for each slot of the
///         optimizer
/// source  Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017; the pairs
///         form a round-robin tournament
template <Strategy Base> class Gossip {
 public:
  using device                                   = typename Base::device;
  using placement                                = typename Base::placement;
  template <class R> static constexpr bool takes = gives_plain_sums<R>;  // R averages the variables
  static_assert(
      placement::writes_everywhere && !shards_optimizer<Base>,
      "chorale: Gossip needs a strategy with a copy of the variables on every replica, e.g. MirroredStrategy");

  explicit Gossip(Base base) : base_{std::move(base)} {}

  /// Rank of this rank's peer in a round, or its own rank if it has no peer.
  static constexpr Rank partner(Rank rank, int ranks, int round) {
    auto const seats = ranks + ranks % 2, circle = seats - 1;  // the last place is fixed, the others rotate
    auto const r     = round % circle;
    auto const meets = [&](Rank a) {
      if (a == circle) return r;
      auto const b = ((2 * r - a) % circle + circle) % circle;
      return b == a ? circle : b;
    };
    auto const other = meets(rank);
    return other >= ranks ? rank : other;
  }

  int num_replicas() const { return base_.num_replicas(); }
  Group group() const { return base_.group(); }
  std::vector<device> local_devices() const { return base_.local_devices(); }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    if (gradients.rows() == 0) ++model.optimizer.now.step;  // an empty share: other replicas go on
    else {
      replica.apart.changed.keep(model.net.variables(), gradients);
      model.optimizer.apply(model.net.variables(), gradients);
    }
    auto const round = static_cast<int>(model.optimizer.now.step % 1'000'000);  // so that a run can resume
    auto const other = partner(replica.id(), replica.num_replicas(), round);
    if (other == replica.id()) return;
    auto const mine = model.net.variables().body(), theirs = gradients.body();
    replica.exchange(other, std::as_bytes(mine), std::as_writable_bytes(theirs));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = (mine[i] + theirs[i]) * 0.5F;
    replica.apart.changed.meet(replica, other, model.net.variables(), gradients);
  }

  /// Averages variables and optimizer state over all replicas at the end of an epoch.
  void finish(auto& replica, auto& model) const {
    auto gradients = model.gradients();
    replica.average(model.net.variables(), gradients, 1, replica.apart.changed);
    replica.average_slots(model.optimizer.slots(), gradients);
  }

 private:
  Base base_;
};

}  // namespace chorale
