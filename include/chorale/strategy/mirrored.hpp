// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/strategy/strategy.hpp>

#include <utility>
#include <vector>

namespace chorale {

/// Synchronous data parallelism in one process: one replica per device, every variable on every replica.
///
///   MirroredStrategy{}                     every device of the default kind
///   MirroredStrategy{Cpu::split(4)}        these devices
///
/// keeps   all copies of a variable are bit-equal after every step
/// throws  BadArgument when the list of devices is empty; PeerLost when a replica fails: the variables then have the
///         values of the step before
/// source  tf.distribute.MirroredStrategy
template <Device D = DefaultDevice> class MirroredStrategy {
 public:
  using device                             = D;
  using placement                          = chorale::placement::Mirrored;
  static constexpr bool reduces_every_step = true, applies_sums = true;

  explicit MirroredStrategy(std::vector<D> devices = D::visible()) : devices_{std::move(devices)} {
    CHORALE_EXPECTS(!devices_.empty(), "MirroredStrategy got a list of 0 devices; a replica needs one");
  }

  int num_replicas() const { return replicas_on(devices_); }
  Group group() const { return Group::all_local(static_cast<int>(devices_.size())); }
  std::vector<D> local_devices() const { return devices_; }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);  // Reduce over Transport; most buckets sent during backward
    model.optimizer.apply(model.net.variables(), gradients);  // same bits in, same bits out, on every replica
  }

 private:
  std::vector<D> devices_;
};

MirroredStrategy() -> MirroredStrategy<>;

}  // namespace chorale
