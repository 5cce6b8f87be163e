// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/device/cpu.hpp>
#include <chorale/device/device.hpp>
#include <chorale/placement/placement.hpp>
#include <chorale/tensor/variable.hpp>
#include <chorale/transport/transport.hpp>

#include <concepts>
#include <vector>

namespace chorale {

/// What strategies compute on unless told otherwise.
using DefaultDevice = Cpu;

/// What the concepts below are checked with: the least that a replica and a model offer to a strategy.
namespace archetype {

struct Replica {
  void all_reduce(Gradients&) {}
};
struct Instance {
  struct {
    void apply(Variables const&, Gradients const&) {}
  } optimizer;
  struct {
    Variables variables() const { return {}; }
  } net;
};

}  // namespace archetype

/// Which devices take part, where variables live, and what a replica does with its gradients.
template <class S>
concept Strategy = requires {
  typename S::device;                                               // what it computes on
  typename S::placement;                                            // where the copies of its variables live
} && Device<typename S::device> && Placement<typename S::placement> &&
    requires(S const& strategy, archetype::Replica& replica, archetype::Instance& model, Gradients& gradients) {
  { strategy.num_replicas() } -> std::same_as<int>;                 // in the whole job, not in this process
  { strategy.group() }        -> std::same_as<Group>;               // all ranks, and which of them live here
  { strategy.local_devices() } -> std::same_as<std::vector<typename S::device>>;   // one for each rank that lives here
  { strategy.update(replica, model, gradients) } -> std::same_as<void>;   // ends a step; what makes it this strategy
};

namespace detail {

template <class S>
struct DeviceOf {
  using type = DefaultDevice;                                              // S is no strategy: Live says so
};
template <Strategy S>
struct DeviceOf<S> {
  using type = typename S::device;
};

}  // namespace detail

/// Does every step of S all-reduce its gradients? Then buckets of them leave while backward still runs.
template <class S>
concept ReducesEveryStep = requires { requires S::reduces_every_step; };

/// Is update() of S an all_reduce() of the gradients, then apply() of the model's optimizer with what that gave? Then a
/// GPU which is alone queues the update behind backward.
template <class S>
concept AppliesSums = ReducesEveryStep<S> && requires { requires S::applies_sums; };

/// Does R give sums as they are? Others round, leave out, or find their gradients by themselves.
template <class R>
inline constexpr bool gives_plain_sums = !requires { typename R::exact; } && !requires { R::logical_shards; };

/// Can S work with the sums that R gives? All can, unless they say otherwise.
template <class S, class R>
concept Takes = !requires { S::template takes<R>; } || requires { requires S::template takes<R>; };

/// Does S have ranks that hold variables and do not compute? They follow the replicas in the group.
template <class S>
concept HasServers = requires { typename S::consistency; };

/// Can ranks of T go on without one that is lost? Strategies with servers ask for it.
template <class T, class S>
concept Spares = !HasServers<S> || requires(typename T::endpoint& at, Rank peer) { at.lost(peer); };

/// Do all replicas of S read the variables of the first one in place? Then there is one copy of them.
template <class S>
inline constexpr bool shares_variables = requires { requires S::shares_variables; };

}  // namespace chorale
