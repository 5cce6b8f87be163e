// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/pjrt/device/pjrt.hpp>
#include <chorale/pjrt/pjrt.hpp>
#include <chorale/strategy/sharded.hpp>
#include <chorale/strategy/strategy.hpp>

#include <string>
#include <utility>
#include <vector>

namespace chorale {

/// Strategy whose replicas are N devices of one PJRT plug-in, such as the eight cores of a TPU host. A step is one
/// program that all of them run together: each computes its part of the rows, sums of gradients are a part of the
/// program, and so is the update. Variables stay on the devices.
///
///   auto const strategy = TPUStrategy<8>{};                                the plug-in that the environment names
///   auto const strategy = TPUStrategy<8>{Pjrt::open(path, {.devices = 8})};
///   auto const strategy = TPUStrategy<8, Zero::one>{};                     each has an eighth of the optimizer's state
///
/// keeps   variables of equal bits on all devices. In a loop of a program's own they are one rank: Live::run calls its
///         step once, with the whole batch
/// throws  BadArgument when there are fewer devices, or no plug-in
/// source  tf.distribute.TPUStrategy
template <int N = 8, Zero... shards> struct TPUStrategy {
  static_assert(N > 0, "chorale: TPUStrategy<N> needs at least 1 device");
  static_assert(sizeof...(shards) <= 1 && ((shards == Zero::one) && ...),
                "chorale: TPUStrategy<N, Zero::one> is the only form with shards. Use ShardedStrategy over Cpu "
                "for others");

  using device                             = Pjrt;
  using placement                          = chorale::placement::OnOne;
  static constexpr bool reduces_every_step = true, applies_sums = true;

  /// Takes the devices of the plug-in that the environment names.
  TPUStrategy() : TPUStrategy{Pjrt::open(pjrt::Plugin::path_from_environment())} {}
  explicit TPUStrategy(Pjrt const& devices)
      : on_{sizeof...(shards) == 0 ? devices.first(N) : devices.first(N).sharding_slots()} {}

  int num_replicas() const { return N; }
  Group group() const { return Group::all_local(1); }
  std::vector<Pjrt> local_devices() const { return {on_}; }

  void update(auto& replica, auto& model, Gradients& gradients) const {
    replica.all_reduce(gradients);  // one replica: nothing is sent
    model.optimizer.apply(model.net.variables(), gradients);
  }

 private:
  Pjrt on_;
};

}  // namespace chorale
