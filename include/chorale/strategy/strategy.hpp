// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/device/device.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/strategy/traits.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <vector>

namespace chorale {

/// Device on which strategies compute unless another one is named.
using DefaultDevice = Cpu;

/// Archetypes with which the concepts below are checked: the least that a replica and a model offer to a strategy.
namespace archetype {

/// The least that a replica offers to a strategy.
struct Replica {
  void all_reduce(Gradients&) {}
};
/// The least that a model offers to a strategy.
struct Instance {
  struct {
    void apply(Variables const&, Gradients const&) {}
  } optimizer;
  struct {
    Variables variables() const { return {}; }
  } net;
};

}  // namespace archetype

/// A distribution strategy: which devices take part, where variables are stored, and how a step uses its gradients.
template <class S>
concept Strategy = requires {
  typename S::device;                                               // that it computes on
  typename S::placement;                                            // where the copies of its variables are stored
} && Device<typename S::device> && Placement<typename S::placement> &&
    requires(S const& strategy, archetype::Replica& replica, archetype::Instance& model, Gradients& gradients) {
  { strategy.num_replicas() } -> std::same_as<int>;                 // in the whole job, not in this process
  { strategy.group() }        -> std::same_as<Group>;               // all ranks, and those of this process
  { strategy.local_devices() } -> std::same_as<std::vector<typename S::device>>;   // one per replica of this process
  { strategy.update(replica, model, gradients) } -> std::same_as<void>;   // ends a step, as the strategy defines it
};

namespace detail {

template <class S>
struct DeviceOf {
  using type = DefaultDevice;                                              // S is no strategy: Live reports it
};
template <Strategy S>
struct DeviceOf<S> {
  using type = typename S::device;
};

}  // namespace detail

}  // namespace chorale
