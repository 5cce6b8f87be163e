// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/reduce/reduce.hpp>
#include <chorale/strategy/strategy.hpp>

#include <utility>
#include <vector>

namespace chorale {

/// The replicas of another strategy, which train independently, and average their variables every h steps.
///
///   local_sgd<8>(MirroredStrategy{Cpu::split(4)})
///
/// keeps   after every h-th step, and after each epoch, all copies of a variable are bit-equal: their mean, weighted by
///         the rows that each replica has trained on since the last average. Optimizer state differs until the end of
///         an epoch. With h = 1 and plain SGD this is MirroredStrategy, up to rounding
/// cost    1/h of the bytes of an all-reduce in every step. For a table whose gradient is rows, 8 bytes and a vector
///         for each row that a replica has changed in h steps; at the end of an epoch the table once for each slot
///         of the optimizer
/// source  Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019
template <int h, Strategy Base> class LocalSgd {
  static_assert(h >= 1, "chorale: LocalSgd<h> averages every h steps, and h is at least 1");

 public:
  using device                                   = typename Base::device;
  using placement                                = typename Base::placement;
  template <class R> static constexpr bool takes = gives_plain_sums<R>;  // R averages the variables
  static_assert(
      placement::writes_everywhere && !shards_optimizer<Base>,
      "chorale: LocalSgd needs a strategy with a copy of the variables on every replica, e.g. MirroredStrategy");

  explicit LocalSgd(Base base) : base_{std::move(base)} {}

  int num_replicas() const { return base_.num_replicas(); }
  Group group() const { return base_.group(); }
  std::vector<device> local_devices() const { return base_.local_devices(); }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.apart.rows += gradients.rows();
    if (gradients.rows() == 0) ++model.optimizer.now.step;  // an empty share: other replicas go on
    else {
      replica.apart.changed.keep(model.net.variables(), gradients);
      model.optimizer.apply(model.net.variables(), gradients);
    }
    if (++replica.apart.steps == h) average(replica, model, gradients);
  }

  /// Averages variables and optimizer state over all replicas at the end of an epoch.
  void finish(auto& replica, auto& model) const {
    auto gradients = model.gradients();
    if (replica.apart.steps != 0) average(replica, model, gradients);
    replica.average_slots(model.optimizer.slots(), gradients);
  }

 private:
  static void average(auto& replica, auto& model, Gradients& gradients) {
    replica.average(model.net.variables(), gradients, replica.apart.rows, replica.apart.changed);
    replica.apart.steps = 0;
    replica.apart.rows  = 0;
  }

  Base base_;
};

template <int h, Strategy Base> LocalSgd<h, Base> local_sgd(Base base) { return LocalSgd<h, Base>{std::move(base)}; }

}  // namespace chorale
