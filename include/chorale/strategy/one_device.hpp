// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/strategy/strategy.hpp>

#include <utility>
#include <vector>

namespace chorale {

/// All variables and all computing on one named device; input still takes the path of the other strategies.
///
/// keeps   the plain training loop: no rank waits for another, nothing is sent
/// source  tf.distribute.OneDeviceStrategy
template <Device D = DefaultDevice>
struct OneDeviceStrategy {
  using device      = D;
  using placement   = chorale::placement::OnOne;

  D on = D::visible().front();

  int            num_replicas() const { return 1; }
  Group          group() const { return Group::all_local(1); }
  std::vector<D> local_devices() const { return {on}; }

  void update(auto& /*replica*/, auto& model, Gradients& gradients) const {
    model.optimizer.apply(model.net.variables(), gradients);
  }
};

OneDeviceStrategy() -> OneDeviceStrategy<>;
template <Device D>
OneDeviceStrategy(D) -> OneDeviceStrategy<D>;

/// No distribution: the first device of the default kind.
///
/// source  tf.distribute.get_strategy() outside any scope
struct DefaultStrategy : OneDeviceStrategy<DefaultDevice> {};

}  // namespace chorale
