// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/strategy/strategy.hpp>

#include <utility>
#include <vector>

namespace chorale {

/// Strategy with all variables and all computing on one named device; input still takes the path of other strategies.
///
/// keeps   the plain training loop: no rank waits for another, nothing is sent
/// throws  BadArgument when no device is named, and this process has none
/// source  tf.distribute.OneDeviceStrategy
template <Device D = DefaultDevice> struct OneDeviceStrategy {
  using device                             = D;
  using placement                          = chorale::placement::OnOne;
  static constexpr bool reduces_every_step = true, applies_sums = true;

  D on = first();

  int num_replicas() const { return replicas_on(on); }
  Group group() const { return Group::all_local(1); }
  std::vector<D> local_devices() const { return {on}; }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);  // one replica: nothing is sent; shards are added up
    model.optimizer.apply(model.net.variables(), gradients);
  }

 private:
  static D first() {
    auto const devices = D::visible();
    CHORALE_EXPECTS(!devices.empty(), "OneDeviceStrategy needs a device, but this process may use none of that kind");
    return devices.front();
  }
};

OneDeviceStrategy() -> OneDeviceStrategy<>;
template <Device D> OneDeviceStrategy(D) -> OneDeviceStrategy<D>;

/// Strategy without distribution: the first device of the default kind.
///
/// source  tf.distribute.get_strategy() outside any scope
struct DefaultStrategy : OneDeviceStrategy<DefaultDevice> {};

}  // namespace chorale
